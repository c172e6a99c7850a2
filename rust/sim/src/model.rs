//! What one iteration of an engine costs, and the models whose constants are known.
//!
//! An iteration that decodes `B` requests with contexts `k₁ … k_B` and prefills chunks of `c`
//! tokens at a mean context of `x` takes
//!
//! ```text
//! t₀ + tR·(1 − (1 − k/E)^B) + tk·Σk        where B > 0: weights of the experts hit, KV read
//!    + Σ c·(a + b·x)                        for each prefill chunk
//! ```
//!
//! Every term is kept in whole picoseconds, so that summing a thousand iterations in closed form
//! and adding them one by one give the same instant, bit for bit.

/// Picoseconds: the engine's inner unit of time. `u128` never overflows in this universe.
pub type Picos = u128;

/// Picoseconds in one microsecond, the unit of the public interface.
pub const PICOS_PER_MICRO: Picos = 1_000_000;

/// The constants of one model on one set of GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name in the table of presets.
    pub name: &'static str,
    /// KV tokens that fit on the device, per DP rank.
    pub capacity_tokens: u64,
    /// `a`: prefill, ps per token.
    pub prefill_ps: u64,
    /// `b`: prefill attention, ps per token and token of context.
    pub prefill_context_ps: u64,
    /// `t₀`: fixed cost of an iteration, ps.
    pub base_ps: u64,
    /// `tR`: reading every routed expert once, ps; 0 for a dense model.
    pub experts_ps: u64,
    /// `k/E`: share of the experts that one token wakes, in `0..=1`.
    pub expert_share: f64,
    /// `tk`: reading the KV of one token of context, ps.
    pub kv_read_ps: u64,
    /// Bringing one token of KV back from the host, ps.
    pub load_back_ps: u64,
    /// Most prefill tokens of one iteration.
    pub chunk_tokens: u64,
}

/// Models with known constants.
///
/// Source: prefill, decode and KV constants as fitted in this project's engine study: capacity from
/// `(mem_fraction·79.6 GiB − weights/TP − 3 GiB) / KV bytes`, `a` from active parameters, `tk` from
/// KV bytes over HBM bandwidth, then `t₀`, `tR`, `tk` checked against published throughput (vLLM on
/// H200 for GLM-4.6 FP8, `InferenceX` for MiniMax-M2.5, vllm issue 21348 for Qwen3-235B). Load-back is
/// KV bytes per GPU over 45 GB/s of a Gen5 x16 link. Confidence: capacity ±10 % (twice with FP8 KV),
/// prefill ±25 %, decode ±30 %.
pub const PRESETS: [Model; 5] = [
    // FP8 weights, bf16 KV, 8×H100 TP8; 47,104 B of KV per token and GPU.
    Model {
        name: "glm-4.6",
        capacity_tokens: 615_000,
        prefill_ps: 50_000_000,
        prefill_context_ps: 1_000,
        base_ps: 6_500_000_000,
        experts_ps: 16_500_000_000,
        expert_share: 8.0 / 160.0,
        kv_read_ps: 19_000,
        load_back_ps: 1_047_000,
        chunk_tokens: 8_192,
    },
    // FP8 weights, TP8 with KV heads twice; 48,128 B. t₀, tR, tk fitted to a figure, not physical.
    Model {
        name: "qwen3-235b",
        capacity_tokens: 908_000,
        prefill_ps: 36_000_000,
        prefill_context_ps: 700,
        base_ps: 5_000_000_000,
        experts_ps: 5_000_000_000,
        expert_share: 8.0 / 128.0,
        kv_read_ps: 36_000,
        load_back_ps: 1_070_000,
        chunk_tokens: 8_192,
    },
    // FP8 weights, TP8, memory fraction .88; 31,744 B.
    Model {
        name: "minimax-m2.5",
        capacity_tokens: 1_390_000,
        prefill_ps: 20_000_000,
        prefill_context_ps: 380,
        base_ps: 7_500_000_000,
        experts_ps: 10_800_000_000,
        expert_share: 8.0 / 256.0,
        kv_read_ps: 12_700,
        load_back_ps: 705_000,
        chunk_tokens: 8_192,
    },
    // bf16 on one RTX 5090; 147,456 B. The least certain row.
    Model {
        name: "qwen3-8b",
        capacity_tokens: 86_000,
        prefill_ps: 120_000_000,
        prefill_context_ps: 5_600,
        base_ps: 12_300_000_000,
        experts_ps: 0,
        expert_share: 1.0,
        kv_read_ps: 103_000,
        load_back_ps: 3_277_000,
        chunk_tokens: 2_048,
    },
    // FP8 weights and KV on 2×H100; 49,152 B in all, capacity as measured.
    Model {
        name: "qwen3-coder-30b",
        capacity_tokens: 2_237_040,
        prefill_ps: 9_000_000,
        prefill_context_ps: 330,
        base_ps: 3_500_000_000,
        experts_ps: 3_000_000_000,
        expert_share: 8.0 / 128.0,
        kv_read_ps: 23_000,
        load_back_ps: 546_000,
        chunk_tokens: 8_192,
    },
];

impl Model {
    /// The preset of this name, if there is one.
    pub fn preset(name: &str) -> Option<&'static Model> {
        PRESETS.iter().find(|model| model.name == name)
    }

    /// Prefill of `tokens` after `context` tokens, ps.
    ///
    /// The mean context `context + tokens/2` makes the cost of a prompt the same however it is cut
    /// into chunks: `a·P + b·P²/2`.
    pub fn prefill(&self, tokens: u64, context: u64) -> Picos {
        let (c, x) = (Picos::from(tokens), Picos::from(context));
        c * Picos::from(self.prefill_ps)
            + (c * x + c * c / 2) * Picos::from(self.prefill_context_ps)
    }

    /// What an iteration costs before any prefill and before KV is read, with `batch` decoding, ps.
    pub fn iteration(&self, batch: usize) -> Picos {
        Picos::from(self.base_ps) + self.experts(batch)
    }

    /// Reading the experts that `batch` tokens wake, ps.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )]
    fn experts(&self, batch: usize) -> Picos {
        let asleep = (1.0 - self.expert_share).powi(i32::try_from(batch).unwrap_or(i32::MAX));
        // At most experts_ps, which f64 holds to the picosecond.
        (self.experts_ps as f64 * (1.0 - asleep)).round() as Picos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_costs_the_same_in_one_chunk_or_in_two() {
        let model = Model::preset("glm-4.6").unwrap();
        let whole = model.prefill(8_000, 1_000);
        assert_eq!(
            whole,
            model.prefill(3_000, 1_000) + model.prefill(5_000, 4_000)
        );
        // 8,000·(50 µs + 1 ns·5,000) = 440 ms.
        assert_eq!(whole, 440_000 * PICOS_PER_MICRO);
    }

    #[test]
    fn minimax_at_four_streams_decodes_in_nine_milliseconds() {
        // InferenceX measured 8.96 ms per token at concurrency 4.
        let model = Model::preset("minimax-m2.5").unwrap();
        let step = model.iteration(4) + Picos::from(model.kv_read_ps) * 4 * 1_000;
        let millis = step / (1_000 * PICOS_PER_MICRO);
        assert!((8..=9).contains(&millis), "{millis} ms");
    }

    #[test]
    fn an_idle_iteration_reads_no_expert_and_a_dense_model_has_none() {
        assert_eq!(
            Model::preset("glm-4.6").unwrap().iteration(0),
            6_500 * PICOS_PER_MICRO
        );
        assert_eq!(
            Model::preset("qwen3-8b").unwrap().iteration(30),
            12_300 * PICOS_PER_MICRO
        );
        assert!(Model::preset("nope").is_none());
    }
}
