"""The native core: three rooms of Rust behind one module. This stub is its manual.

`Scheduler` decides, `scan_request` and `ResponseScanner` read bytes, `Engine` emulates a worker.
Nothing in here reads a clock, logs, opens a socket, starts a thread or calls Python. Times are
integer milliseconds of any monotonic clock, token counts are integers, ids are non-negative
integers but for programs and groups, which are strings.
"""

from collections.abc import Sequence
from typing import Final, Literal, final

__version__: Final[str]

# --- scheduler ---------------------------------------------------------------------------------

PolicyName = Literal["off", "paper", "adaptive"]

@final
class SchedulerConfig:
    """The scheduler's constants; `thunder_router.config.SchedulingSettings` is where they default.

    Raises:
        ConfigError: a value is out of range or contradicts another; the message names both.
    """

    def __new__(
        cls,
        *,
        policy: PolicyName,
        tick_ms: int,
        queue_limit: int,
        hold_limit_ms: int,
        no_worker_limit_ms: int,
        paper_tick_ms: int,
        paper_half_life_ms: int,
        paper_lambda_max: float,
        paper_lambda_min: float,
        event_driven: bool,
        shared_prefix: bool,
        origin_affinity: bool,
        growth_steps_paused: float,
        growth_steps_new: float,
        margin_min: float,
        margin_max: float,
        displacement_eta: float,
        lease_ms: int,
        lease_min_ms: int,
        idle_timeout_ms: int,
        aimd: bool,
        aimd_raise_above: float,
        aimd_lower_below: float,
        aimd_cap: float,
        reservation_ms: int | None,
        time_slice_ms: int | None,
        time_slice_restore_factor: float,
        mark_running_above: float,
        host_tier: bool,
        weight_sync_timeout_ms: int,
    ) -> SchedulerConfig: ...

@final
class Admit:
    """Send this request to this (worker, DP rank) now."""

    __match_args__ = ("request", "worker", "rank")
    request: Final[int]
    worker: Final[int]
    rank: Final[int]
    @property
    def reason(self) -> str: ...

@final
class Hold:
    """Keep this request waiting; a later tick admits or rejects it."""

    __match_args__ = ("request",)
    request: Final[int]
    @property
    def reason(self) -> str: ...

@final
class Reject:
    """Answer this request with an error; it is forgotten.

    `kind` is fit for a metric label: `queue_full` and `hold_limit` are 429, `oversize` is 413,
    `no_worker` is 503.
    """

    __match_args__ = ("request", "kind", "retry_after_ms")
    request: Final[int]
    kind: Final[Literal["queue_full", "hold_limit", "oversize", "no_worker"]]
    retry_after_ms: Final[int]
    @property
    def reason(self) -> str: ...

@final
class Pause:
    """The program gave up its place on this worker: its next turn waits in the global queue."""

    __match_args__ = ("program", "worker", "rank")
    program: Final[str]
    worker: Final[int]
    rank: Final[int]
    @property
    def reason(self) -> str: ...

@final
class Restore:
    """The paused program has a place again; the `Admit` of its request comes with it."""

    __match_args__ = ("program", "worker", "rank")
    program: Final[str]
    worker: Final[int]
    rank: Final[int]
    @property
    def reason(self) -> str: ...

@final
class Prepare:
    """This waiting program's turn comes soon: get its tool environment ready."""

    __match_args__ = ("program", "expected_wait_ms")
    program: Final[str]
    expected_wait_ms: Final[int]
    @property
    def reason(self) -> str: ...

@final
class Expire:
    """The program was silent beyond its idle time-out and is forgotten."""

    __match_args__ = ("program",)
    program: Final[str]
    @property
    def reason(self) -> str: ...

Decision = Admit | Hold | Reject | Pause | Restore | Prepare | Expire

@final
class ProgramView:
    """One program as it stands, for people and the API; never for deciding."""

    program: Final[str]
    generation: Final[int]
    group: Final[str | None]
    tenant: Final[str | None]
    operator: Final[bool]
    phase: Final[Literal["reasoning", "acting"]]
    status: Final[Literal["new", "active", "paused"]]
    worker: Final[int | None]
    rank: Final[int | None]
    origin: Final[tuple[int, int] | None]
    context_tokens: Final[int]
    in_flight: Final[int]
    waiting: Final[int]
    steps: Final[int]
    idle_ms: Final[int]
    held_ms: Final[int]

@final
class TenantView:
    """One tenant that has programs; `tenant` None: those that are accounted to nobody."""

    tenant: Final[str | None]
    weight: Final[int]
    charged_tokens: Final[int]
    programs: Final[int]
    waiting: Final[int]

@final
class WorkerView:
    """One (worker, DP rank) budget as it stands, for people and the API."""

    worker: Final[int]
    rank: Final[int]
    state: Final[Literal["ready", "unready", "draining", "down"]]
    device_tokens: Final[int | None]
    host_tokens: Final[int]
    charged_tokens: Final[int]
    shared_tokens: Final[int]
    free_tokens: Final[int | None]
    margin_tokens: Final[int]
    programs: Final[int]
    reasoning: Final[int]
    acting: Final[int]
    in_flight: Final[int]

@final
class Scheduler:
    """Programs, workers and the global waiting queue. Events in, decisions out of `tick`.

    Every event method costs O(log n), returns nothing but what it says, and raises a
    `SchedulerError` when it makes no sense; the state is then unchanged. Threads may share one.

    A request's life: `arrive`, then `tick` yields `Admit`, `Hold` or `Reject` for it; a held one is
    admitted or rejected by a later tick; an admitted one ends with exactly one of `finished`,
    `failed` or `cancelled` (or goes back to its old place in the queue by `bounced`).
    """

    def __new__(cls, config: SchedulerConfig) -> Scheduler: ...

    # Workers. The unit is the (worker, DP rank) pair: KV capacity is per rank.
    def worker_up(
        self,
        worker: int,
        rank: int,
        *,
        device_tokens: int | None,
        host_tokens: int = 0,
        write_back: bool = False,
        prefill_us_per_token: float,
        prefill_ns_per_token2: float,
        load_back_us_per_token: float,
        sessions: bool,
        now_ms: int,
    ) -> None:
        """The rank serves, with this KV capacity in tokens; also a change of capacity.

        `device_tokens` None: unknown, so requests pass through unscheduled. `host_tokens`:
        HiCache's host tier, 0 without one. Prefill of c tokens at context x takes
        c·(a + b·x): a in µs per token, b in ns per token and token of context.
        `sessions`: the engine can be told which program's KV to drop first.
        """
    def worker_unready(self, worker: int, now_ms: int) -> None:
        """Every rank takes no new work for now; its programs keep their places."""
    def worker_draining(self, worker: int, now_ms: int) -> None:
        """Programs leave as they turn; nothing new comes."""
    def worker_down(self, worker: int, now_ms: int) -> None:
        """Gone: its programs are queued or placed elsewhere with their sizes, no KV anywhere.

        Requests in flight there stay until the caller ends or bounces them.
        """
    def kv_flushed(self, worker: int, now_ms: int) -> None:
        """The engine dropped its KV cache (weights changed, /flush_cache)."""
    def weight_sync_begin(self, now_ms: int) -> None:
        """Admit nothing until `weight_sync_end`, or until the watchdog's time is over."""
    def weight_sync_end(self, now_ms: int) -> None:
        """Proceed; KV residency is zero everywhere."""

    # Requests.
    def arrive(
        self,
        request: int,
        *,
        program: str | None,
        group: str | None = None,
        tenant: str | None = None,
        weight: int = 1,
        prompt_tokens: int,
        prefix: int | None = None,
        now_ms: int,
    ) -> None:
        """A request came.

        `tenant`: whom its program is accounted to from now on, with this `weight` against others;
        only the adaptive policy asks. `prompt_tokens`: estimated. `prefix`: identity of its leading
        system prompt and tools, for the shared prefix. `program` None: accounted for alone.

        Raises:
            DuplicateRequestError: the id is held or in flight.
        """
    def bounced(self, request: int, now_ms: int) -> None:
        """Its worker refused it before it started: back to its place, and not that worker again."""
    def progress(self, request: int, decoded_tokens: int, now_ms: int) -> None:
        """`decoded_tokens` so far, in total."""
    def finished(
        self,
        request: int,
        *,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None = None,
        cached_host_tokens: int | None = None,
        tool: str | None = None,
        now_ms: int,
    ) -> None:
        """Answered whole. None where the answer did not say: the estimate then stands.

        `cached_tokens`: prompt tokens found in any cache; `cached_host_tokens`: those of them in
        the host tier. `tool`: the kind of tool that the answer called.
        """
    def failed(self, request: int, now_ms: int) -> None:
        """Ended by an error at any stage: the program keeps its size."""
    def cancelled(self, request: int, now_ms: int) -> None:
        """The client left, held or in flight. A held one leaves no trace."""

    # Programs.
    def release(self, program: str, now_ms: int) -> bool:
        """The program ended. True if it was known. In-flight requests still end on their own."""
    def pause(self, program: str, now_ms: int) -> None:
        """An operator's pause: held until `restore`, whatever room there is."""
    def restore(self, program: str, now_ms: int) -> None:
        """Ends an operator's pause."""
    def remember(
        self,
        program: str,
        *,
        group: str | None,
        context_tokens: int,
        worker: int | None,
        rank: int | None,
        idle_ms: int,
        operator: bool = False,
        now_ms: int,
    ) -> None:
        """Takes a program over from a snapshot of an earlier run: acting, nothing in flight.

        `operator`: an operator had paused it, so it stays paused until `restore`.
        """

    # Deciding.
    def tick(self, now_ms: int) -> list[Decision]:
        """All decisions due now, in the order in which to carry them out."""
    def next_tick_ms(self, now_ms: int) -> int | None:
        """Milliseconds until `tick` must be called again without any event; None: no need.

        Every event may change the answer. Spurious calls of `tick` are harmless.
        """

    # Looking.
    def program(self, program: str, now_ms: int) -> ProgramView | None: ...
    def programs(self, now_ms: int) -> list[ProgramView]: ...
    def workers(self) -> list[WorkerView]: ...
    def tenants(self) -> list[TenantView]: ...
    def counts(self) -> dict[str, int]:
        """`programs`, `active`, `paused`, `waiting`, `in_flight`, `workers`: O(1)."""
    def check(self) -> None:
        """Recounts everything from nothing.

        Raises:
            InvariantError: a count does not add up; the message says which.
        """

# --- wire --------------------------------------------------------------------------------------

Dialect = Literal["chat", "completions", "responses", "messages", "generate"]

@final
class RequestFacts:
    """What one pass over a request body found. Offsets are into that body."""

    @property
    def model(self) -> str | None: ...
    @property
    def stream(self) -> bool: ...
    @property
    def include_usage(self) -> bool:
        """The client asked for the usage chunk itself."""
    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Every identity field found, dotted path and value, in the order of the body.

        Integers as decimal strings; other types and values beyond 4 KiB are left out. For example
        `metadata.user_id`, `nvext.agent_context.session_id` or, from an object or a JSON string,
        `vllm_xargs.agentic_context.program_id`; the table in `rust/wire/src/request/fields.rs` has
        them all. Which of them names the program is the business of `identity.py`.
        """
    @property
    def final(self) -> bool:
        """A final signal: `session_final`, `trajectory_final`, `program_done`, `is_last_step`."""
    @property
    def final_only(self) -> bool:
        """A final signal with nothing to generate from (no messages, prompt or input)."""
    @property
    def docker_ids(self) -> tuple[str, ...]: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def rid(self) -> str | None:
        """The client's own request id; None also for the list of ids of a batch."""
    @property
    def n(self) -> int:
        """Completions per prompt, at least 1."""
    @property
    def max_new_tokens(self) -> int | None: ...
    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of prompt text, JSON escapes resolved, media left out.

        Tools and tool calls count as the JSON that a chat template renders.
        """
    @property
    def text_chars(self) -> int: ...
    @property
    def wide_chars(self) -> int:
        """Characters of scripts that tokenize at about one token each (CJK, Hangul, kana)."""
    @property
    def media_items(self) -> int: ...
    @property
    def media_bytes(self) -> int:
        """Bytes of the media as they stand in the body: base64, data URL or URL."""
    @property
    def token_ids(self) -> int:
        """Exact count where the prompt is token ids (`input_ids`, `prompt: [1, 2]`), else 0."""
    @property
    def messages(self) -> int:
        """Messages, or input items of the responses API."""
    @property
    def prefix(self) -> int | None:
        """Hash of the leading system prompt and the tools: equal for programs that share them."""
    def forward(
        self,
        body: bytes,
        *,
        include_usage: bool,
        drop: Sequence[Literal["session_id", "rid", "priority", "routed_dp_rank"]] = ...,
        session_id: str | None = None,
        rid: str | None = None,
        priority: int | None = None,
        dp_rank: int | None = None,
    ) -> tuple[bytes | memoryview, ...]:
        """The bytes for the worker: router-only fields cut, the rest untouched.

        Returns them in parts: `body` itself where nothing changes, views of it for long spans.
        `include_usage` splices `stream_options.include_usage` into a streaming chat or completions
        body that lacks it. `drop` cuts fields that this worker's engine does not know.
        `session_id`, `rid`, `priority` and `dp_rank` (as `routed_dp_rank`) are spliced in where the
        client set none, or where its own is dropped.

        Raises:
            InvalidBodyError: `body` is not the one that was scanned, as its length tells.
            ValueError: `drop` names another field.
        """

@final
class Headers:
    """The headers of one message as received, in order, repeats included."""

    def __new__(cls, lines: Sequence[tuple[bytes, bytes]]) -> Headers: ...
    def __len__(self) -> int: ...
    def get(self, name: bytes) -> bytes | None:
        """The value under this name, in any case; of repeats, the last."""
    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        """Names as sent, and values."""
    @property
    def lowered(self) -> list[tuple[bytes, bytes]]:
        """Names in lower case, and values: as ASGI has them."""

def read_plain_request(data: bytes) -> tuple[bytes, Headers, int, int] | None:
    """Reads a POST that `data` begins with, if its whole head is there and plain.

    Plain is what every reader of HTTP understands in the same way: HTTP/1.1, lines that end with
    CRLF, one `Content-Length` and no other framing, a connection that is kept. Anything else is
    None, and for another reader to judge.

    Returns the target, the headers, the bytes of the head, and those of the body as announced.
    """

def read_plain_answer(data: bytes) -> tuple[int, bytes, Headers, bytes] | None:
    """Reads an answer, if `data` is the whole of it and nothing more, and its head is plain.

    Returns the status, the phrase beside it, the headers and the body.
    """

def request_head(
    method: bytes,
    target: bytes,
    headers: Headers,
    /,
    *,
    prefix: bytes,
    host: bytes,
    authorization: bytes | None,
    own_credentials: bool,
    rank: int | None,
    length: int,
    request_id: bytes | None,
) -> bytes:
    """The head of a request for a worker: the client's end-to-end headers, our framing.

    Args:
        method: In upper case.
        target: Path and query.
        headers: The client's.
        prefix: Put before the target.
        host: What `Host` says.
        authorization: The worker's own credentials, in place of the client's.
        own_credentials: The client's credentials were for the router, not for the worker.
        rank: The DP rank, told in `X-Data-Parallel-Rank`; None where the worker has one only.
        length: Bytes of the body.
        request_id: Sent as `X-Request-Id`; None where the client sent its own.
    """

def answer_head(
    status: int,
    reason: bytes,
    headers: Headers,
    /,
    *,
    measured: bool,
    chunked: bool,
    closes: bool,
    request_id: bytes,
) -> bytes:
    """The head of an answer for a client: the worker's end-to-end headers, our framing.

    Args:
        status: As the worker said.
        reason: The worker's own phrase.
        headers: The worker's.
        measured: The worker's `Content-Length`, if any, holds.
        chunked: The body is sent in chunks.
        closes: The connection ends with this answer.
        request_id: Told where the worker did not tell it itself.
    """

def scan_request(body: bytes, dialect: Dialect) -> RequestFacts:
    """One pass, no tree.

    Raises:
        InvalidBodyError: not a JSON object, a wrong type in a field the router needs, a duplicate
            top-level key that the router reads, invalid UTF-8, or 128 containers nested; the
            message says which and at what byte.
    """

@final
class ResponseScanner:
    """Reads an answer as it streams, and passes its bytes on.

    Feed it the decoded body bytes (no transfer or content coding), any split. The facts are
    complete once `finish` was called. It never raises, and holds at most 16 KiB of an answer.
    """

    def __new__(cls, dialect: Dialect, *, stream: bool, strip_usage: bool) -> ResponseScanner: ...
    def feed(self, chunk: bytes) -> bytes:
        """What to send on now: `chunk` itself where nothing is held back or cut.

        With `strip_usage` the usage chunk that the client did not ask for is cut, and a chunk that
        may be its beginning is held until it is known.
        """
    def finish(self) -> bytes:
        """What was held back, at the end of the answer."""
    @property
    def events(self) -> int:
        """Whole SSE events seen, the last one (`[DONE]`) too; comments are none."""
    @property
    def first_event_error(self) -> str | None:
        """The message, where the first event is an error in a stream that began with 200."""
    @property
    def first_event_error_code(self) -> int | None: ...
    @property
    def error(self) -> str | None:
        """The message of the last error event, or of an error body."""
    @property
    def done(self) -> bool:
        """The answer said its end.

        A stream by [DONE], message_stop, response.completed or a finish reason for every sequence,
        a JSON answer by its last bracket.
        """
    @property
    def prompt_tokens(self) -> int | None:
        """Cached ones included, in every dialect. Sums over a batch."""
    @property
    def completion_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def cached_host_tokens(self) -> int | None: ...
    @property
    def cached_storage_tokens(self) -> int | None: ...
    @property
    def decoded_events(self) -> int:
        """Events so far that brought text: a lower bound of decoded tokens while streaming."""
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that the answer called, in order, without repeats."""
    @property
    def response_id(self) -> str | None: ...
    @property
    def weight_version(self) -> str | None: ...

# --- engine ------------------------------------------------------------------------------------
# Times are microseconds of virtual time, in order: never smaller than in an earlier call.

@final
class FirstToken:
    """Prefill is done and the first token is out."""

    request: Final[int]
    at_us: Final[int]
    cached_device: Final[int]
    """Prompt tokens found on the device."""
    cached_host: Final[int]
    """Prompt tokens brought back from the host, after those."""

@final
class Progress:
    """So many tokens are out, in total. Only for requests that asked for it."""

    request: Final[int]
    at_us: Final[int]
    decoded: Final[int]

@final
class Retracted:
    """The pool ran dry: it lost its KV, queues again and recomputes prompt and output."""

    request: Final[int]
    at_us: Final[int]

@final
class Displaced:
    """A request of higher priority took its place in the full queue; it is gone."""

    request: Final[int]
    at_us: Final[int]

@final
class Finished:
    """It is over, answered whole or aborted."""

    request: Final[int]
    at_us: Final[int]
    aborted: Final[bool]
    prompt_tokens: Final[int]
    completion_tokens: Final[int]
    cached_device: Final[int]
    cached_host: Final[int]
    retractions: Final[int]
    queue_us: Final[int]

_EngineEvent = FirstToken | Progress | Retracted | Displaced | Finished

@final
class EngineLoads:
    """An engine at one instant. Used, evictable and free tokens add up to its capacity."""

    running: Final[int]
    waiting: Final[int]
    retracted: Final[int]
    """Of those waiting, retracted ones."""
    waiting_tokens: Final[int]
    waiting_uncached_tokens: Final[int]
    used_tokens: Final[int]
    """KV of running requests. The cache of programs between turns is not in it."""
    evictable_tokens: Final[int]
    free_tokens: Final[int]
    host_tokens: Final[int]
    decoding_tokens: Final[int]
    """Sum of the contexts that decode."""
    new_token_ratio: Final[float]
    """Share of their declared limits that admission keeps free for running requests."""

@final
class EngineCounts:
    """Sums since an engine was made."""

    submitted: Final[int]
    finished: Final[int]
    aborted: Final[int]
    retractions: Final[int]
    prompt_tokens: Final[int]
    cached_device_tokens: Final[int]
    cached_host_tokens: Final[int]
    prefilled_tokens: Final[int]
    recomputed_tokens: Final[int]
    """Prefill that retractions made necessary."""
    generated_tokens: Final[int]
    prefill_busy_us: Final[int]
    evicted_tokens: Final[int]
    loaded_back_tokens: Final[int]
    backed_up_tokens: Final[int]
    host_evicted_tokens: Final[int]

@final
class Engine:
    """One emulated engine, one DP rank, in virtual time: told the time, it says what happened.

    It models iterations (fixed cost, expert weights, KV read, chunked prefill), a paged KV pool
    with radix reuse and LRU eviction, a host tier, first-come admission with a reserve, retraction.
    """

    def __new__(
        cls,
        *,
        model: str,
        capacity_tokens: int | None,
        page_tokens: int,
        host_tokens: int,
        write_policy: Literal["write_through", "write_back"],
        max_running: int,
        max_queued: int | None,
        session_radix: bool,
        priority_scheduling: bool,
        progress_us: int,
    ) -> Engine:
        """`model`: one of `models()`. `capacity_tokens` None: the model's own; cut to whole pages.

        `progress_us`: virtual time between `Progress` events, 0 for one after every token.

        Raises:
            ConfigError: a value is unknown or contradicts another.
        """
    @staticmethod
    def models() -> list[str]:
        """Names of the models whose constants are known."""
    @property
    def capacity_tokens(self) -> int: ...
    @property
    def max_prompt_tokens(self) -> int: ...
    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
    @property
    def paused(self) -> bool: ...
    def submit(
        self,
        request: int,
        *,
        prompt: bytes,
        prompt_tokens: int,
        answer: bytes,
        output_tokens: int,
        max_tokens: int,
        bytes_per_token: float,
        priority: int,
        session: str | None,
        progress: bool,
        now_us: int,
    ) -> Literal["too_long", "queue_full"] | None:
        """Takes a request in, or says why not.

        `prompt` and `answer` are bytes that stand for their tokens: two prompts share a prefix as
        far as their blocks of 64 tokens, at `bytes_per_token`, are equal. `output_tokens` is how
        much it will generate, `max_tokens` what it declared; both are cut to what fits the pool.

        Raises:
            DuplicateRequestError: the id is in flight.
            ValueError: `bytes_per_token` is not in (0, 1024].
        """
    def abort(self, request: int, now_us: int) -> bool:
        """Cuts it short, where it runs at the end of its iteration. False if not in flight."""
    def advance(self, now_us: int) -> list[_EngineEvent]:
        """Lets time pass and tells what happened, in order."""
    def next_event_us(self) -> int | None:
        """When `advance` has something to do; None: not before something else happens.

        Every other call may change the answer. Calling `advance` for nothing is harmless.
        """
    def decoded(self, request: int, now_us: int) -> int | None:
        """Tokens it has generated, where it is in flight."""
    def close_session(self, session: str, now_us: int) -> None:
        """Its KV goes first from now on. Requests already running leave it closed."""
    def flush(self) -> bool:
        """Drops the cache, both tiers. False, and nothing done, while anything is in flight."""
    def pause(self, mode: str, now_us: int) -> None:
        """Stands still after this iteration.

        `abort` ends what is in flight, `retract` takes its KV and queues it, `in_place` keeps
        everything.

        Raises:
            ValueError: another mode.
        """
    def resume(self, now_us: int) -> None: ...
    def loads(self, now_us: int) -> EngineLoads: ...
    def counts(self) -> EngineCounts: ...

# --- simulation --------------------------------------------------------------------------------

@final
class SimulationReport:
    """Figures of the measured part of a simulated day. Nothing in it was measured on a GPU."""

    steps: Final[int]
    """Turns answered."""
    programs: Final[int]
    """Programs that ended."""
    steps_per_min: Final[float]
    programs_per_hour: Final[float]
    prompt_tokens: Final[int]
    cached_device_tokens: Final[int]
    cached_host_tokens: Final[int]
    reusable_tokens: Final[int]
    """Prompt tokens that a perfect cache would have found."""
    recomputed_tokens: Final[int]
    """Computed though computed before: reusable and not found, or lost to a retraction."""
    generated_tokens: Final[int]
    hit_rate: Final[float]
    ideal_hit_rate: Final[float]
    retractions: Final[int]
    refused: Final[int]
    failed: Final[int]
    """Requests that ended with their engine, to be asked again."""
    pauses: Final[int]
    hold_p50_ms: Final[int]
    """How long the router held requests; those still held at the end count."""
    hold_p99_ms: Final[int]
    hold_max_ms: Final[int]
    first_token_p50_ms: Final[int]
    """From asking to the first token: the router's hold, the engine's queue, the prefill."""
    first_token_p99_ms: Final[int]
    turn_p50_ms: Final[int]
    """From asking to the end of the answer."""
    turn_p90_ms: Final[int]
    turn_p99_ms: Final[int]

@final
class AgentTurn:
    """One turn of a program, as pieces that are named by everything up to their end."""

    @property
    def prompt(self) -> list[tuple[int, int]]:
        """Identity and tokens of each piece: shared prefix, task, then what was said since."""
    @property
    def answer(self) -> tuple[int, int]:
        """Identity and tokens of the answer, as the next prompt will hold it."""
    reusable_tokens: Final[int]
    """Prompt tokens that a perfect cache would find."""
    tool: Final[str | None]
    """Kind of the tool that the answer calls; None at the end of the program."""
    tool_us: Final[int]

@final
class AgentProgram:
    """One agent program, turn by turn: the same ones that `simulate` plays.

    `slot` and `ordinal` name it: the `ordinal`-th program of that place in the closed loop.
    `midway` begins at a random turn, as the first of each slot do.

    Raises:
        ConfigError: no such workload.
    """

    def __new__(
        cls,
        *,
        workload: str,
        seed: int,
        slot: int,
        ordinal: int,
        tool_scale: float,
        midway: bool,
    ) -> AgentProgram: ...
    def turn(self) -> AgentTurn | None:
        """The next turn; None once the program has ended."""

@final
class EngineModel:
    """The constants of a model on its GPUs: what one iteration of an engine costs.

    Decoding a batch of B takes `base_ms`, `experts_ms` for the share of the experts that B tokens
    wake, and `kv_read_ns_per_token` for each token of context; prefilling a token takes
    `prefill_us_per_token`, and `prefill_ns_per_token2` for each token before it.

    Raises:
        ConfigError: a constant is out of range.
    """

    def __new__(
        cls,
        *,
        capacity_tokens: int,
        prefill_us_per_token: float,
        prefill_ns_per_token2: float,
        base_ms: float,
        experts_ms: float,
        expert_share: float,
        kv_read_ns_per_token: float,
        load_back_us_per_token: float,
        chunk_tokens: int,
    ) -> EngineModel: ...
    @staticmethod
    def preset(name: str) -> EngineModel:
        """The model of `Engine.models()` of this name.

        Raises:
            ConfigError: there is none.
        """

    @property
    def capacity_tokens(self) -> int:
        """KV tokens that fit on the device."""
    @property
    def prefill_us_per_token(self) -> float: ...
    @property
    def prefill_ns_per_token2(self) -> float: ...
    @property
    def base_ms(self) -> float:
        """Fixed cost of an iteration."""
    @property
    def experts_ms(self) -> float:
        """Reading every routed expert once; 0 for a dense model."""
    @property
    def expert_share(self) -> float:
        """Share of the experts that one token wakes, 0 to 1."""
    @property
    def kv_read_ns_per_token(self) -> float: ...
    @property
    def load_back_us_per_token(self) -> float:
        """Bringing a token of KV back from the host tier."""
    @property
    def chunk_tokens(self) -> int:
        """Most prefill tokens of one iteration."""

def workloads() -> list[str]:
    """Names of the workloads whose distributions are known."""

def baselines() -> list[str]:
    """Names of what `simulate` can compare the scheduler with."""

def simulate(
    *,
    workload: str | Sequence[Sequence[tuple[int, int, int, float]]],
    model: EngineModel,
    router: SchedulerConfig | str,
    workers: int,
    capacities: Sequence[int],
    outages: Sequence[tuple[int, int, int]],
    programs: int,
    seed: int,
    warmup_s: int,
    measured_s: int,
    hicache_ratio: float,
    write_policy: Literal["write_through", "write_back"],
    page_tokens: int,
    sessions: bool,
    releases: bool,
    tool_scale: float,
    max_tokens: int,
) -> SimulationReport:
    """Plays one day in virtual time, some thousand times as fast as a real one.

    `programs` agent programs are alive at any time over `workers` engines: when one ends, the next
    begins. Which program that is depends on `seed` alone, so every router meets the same ones. The
    interpreter is released meanwhile.

    Args:
        workload: One of `workloads()`, or recorded sessions: of each turn its prompt tokens, output
            tokens, leading prompt tokens shared with the turn before, and the seconds until the
            next one asks.
        model: What the engines cost.
        router: The real scheduler by its constants, or one of `baselines()`.
        workers: Engines.
        capacities: KV tokens of each engine; empty: the model's own for all.
        outages: Engines that go and come back empty: which, and when in virtual seconds from the
            beginning of the day. Their requests fail and are asked again.
        programs: Programs alive at a time, over all engines.
        seed: Which day.
        warmup_s: Virtual seconds before anything counts.
        measured_s: Virtual seconds that count.
        hicache_ratio: Host tier as a multiple of the device's tokens; 0 for none.
        write_policy: When KV is copied to the host.
        page_tokens: Tokens of a page.
        sessions: Engines keep sessions, and pausing or ending a program closes its session.
        releases: Programs say when they end.
        tool_scale: Tools take so many times as long.
        max_tokens: Tokens that requests declare they may generate.

    Raises:
        ConfigError: a value is unknown or makes no sense.
    """
