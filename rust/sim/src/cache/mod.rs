//! The radix cache: which prefixes have their KV on the device, and which on the host.
//!
//! A tree of spans. A node's tokens may sit on the device, on the host, or on both; a node that has
//! them on neither is gone. The device set is closed under "parent of", as is what can be brought
//! back from the host, so that a prefix is one run of device nodes followed by one of host nodes.
//!
//! A running request *locks* its deepest node, which protects the whole path to it. What is not
//! locked is *evictable*: it is cache, and counts as free when room is needed. Eviction takes
//! leaves, least recently used first; with sessions, leaves that no open session refers to go before
//! all others. The order is a pure function of what was called, never of memory addresses.

mod residency;
mod session;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::span::Span;

pub use residency::WritePolicy;

/// Index of a node; [`ROOT`] is the empty prefix.
pub type NodeId = u32;

/// The empty prefix: always resident, never evicted.
pub const ROOT: NodeId = 0;

#[derive(Clone, Debug, Default)]
struct Node {
    id: u64,
    parent: NodeId,
    children: Vec<NodeId>,
    /// Children with tokens on the device.
    device_children: u32,
    /// Tokens on the device, where the node is there.
    device: Option<u64>,
    /// Tokens on the host, where the node is there.
    host: Option<u64>,
    /// Locks on this node, plus children that are locked themselves or above a lock.
    locks: u32,
    /// Tags of open sessions on this node, plus children with any.
    open: u32,
    /// Sessions whose conversation ends at this node.
    tags: Vec<u64>,
    /// When it was last used, in uses.
    touched: u64,
    /// The use that filed it, and in which prefill chunk: what a real tree holds as one node.
    filed: (u64, u64),
    /// A child that is a short last block.
    tail: Option<NodeId>,
    /// Its entries in the two eviction orders, as filed.
    device_rank: Option<(bool, u64)>,
    host_rank: Option<u64>,
}

/// How much of a prompt is cached, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Deepest node whose tokens are on the device.
    pub device_node: NodeId,
    /// Deepest node that can be used once its host run is loaded back.
    pub deepest: NodeId,
    /// Usable tokens on the device.
    pub device_tokens: u64,
    /// Usable tokens on the host, after those.
    pub host_tokens: u64,
    /// Device room that loading the host run back takes.
    pub load_tokens: u64,
    /// Of the device run, tokens that no lock protects yet.
    pub unlocked_tokens: u64,
}

/// What the cache has done since it was made, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Dropped from the device.
    pub evicted: u64,
    /// Brought back from the host.
    pub loaded_back: u64,
    /// Copied to the host.
    pub backed_up: u64,
    /// Dropped from the host.
    pub host_evicted: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cache {
    page: u64,
    chunk: u64,
    nodes: Vec<Node>,
    vacant: Vec<NodeId>,
    by_id: HashMap<u64, NodeId>,
    uses: u64,
    device_tokens: u64,
    locked_tokens: u64,
    host_tokens: u64,
    host_capacity: u64,
    write_policy: WritePolicy,
    device_order: BTreeSet<(bool, u64, NodeId)>,
    host_order: BTreeSet<(u64, NodeId)>,
    sessions: BTreeMap<u64, Vec<NodeId>>,
    counts: CacheCounts,
}

impl Cache {
    /// An empty cache with pages of `page` tokens and room for `host_capacity` tokens on the host;
    /// prompts are filed in chunks of `chunk` tokens.
    pub fn new(page: u64, chunk: u64, host_capacity: u64, write_policy: WritePolicy) -> Self {
        Self {
            page,
            chunk,
            nodes: vec![Node {
                device: Some(0),
                host: Some(0),
                ..Node::default()
            }],
            vacant: Vec::new(),
            by_id: HashMap::new(),
            uses: 0,
            device_tokens: 0,
            locked_tokens: 0,
            host_tokens: 0,
            host_capacity,
            write_policy,
            device_order: BTreeSet::new(),
            host_order: BTreeSet::new(),
            sessions: BTreeMap::new(),
            counts: CacheCounts::default(),
        }
    }

    /// Tokens of cached prefixes on the device, locked or not.
    pub fn device_tokens(&self) -> u64 {
        self.device_tokens
    }

    /// Tokens on the device that nothing locks.
    pub fn evictable_tokens(&self) -> u64 {
        self.device_tokens - self.locked_tokens
    }

    /// Tokens on the host.
    pub fn host_tokens(&self) -> u64 {
        self.host_tokens
    }

    /// What was done so far.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// The longest cached prefix of `spans`, at most `limit` tokens of it usable.
    pub fn find(&self, spans: &[Span], limit: u64) -> Match {
        let mut found = Match {
            device_node: ROOT,
            deepest: ROOT,
            device_tokens: 0,
            host_tokens: 0,
            load_tokens: 0,
            unlocked_tokens: 0,
        };
        let (mut end, mut held) = (0, 0);
        for span in spans {
            let Some(&child) = self.by_id.get(&span.id) else {
                break;
            };
            let node = &self.nodes[child as usize];
            end += span.tokens;
            let on_device = found.deepest == found.device_node && node.device.is_some();
            let Some(tokens) = (if on_device { node.device } else { node.host }) else {
                break;
            };
            held += tokens;
            found.deepest = child;
            if on_device {
                found.device_node = child;
                found.device_tokens = held;
                if node.locks == 0 {
                    found.unlocked_tokens += tokens;
                }
            } else {
                found.load_tokens += tokens;
            }
            // A conversation's last token has no KV yet: what follows it does not fit on.
            if held < self.whole_pages(end) {
                break;
            }
        }
        found.device_tokens = found.device_tokens.min(limit);
        found.host_tokens = held.min(limit) - found.device_tokens;
        if found.host_tokens == 0 {
            found.deepest = found.device_node;
            found.load_tokens = 0;
        }
        found
    }

    /// Counts as a use of the path to `node`.
    pub fn touch(&mut self, node: NodeId) {
        self.uses += 1;
        let mut at = node;
        while at != ROOT {
            self.nodes[at as usize].touched = self.uses;
            self.refile(at);
            at = self.nodes[at as usize].parent;
        }
    }

    /// Protects the path to `node`.
    pub fn lock(&mut self, node: NodeId) {
        let mut at = node;
        while at != ROOT {
            let one = &mut self.nodes[at as usize];
            one.locks += 1;
            if one.locks > 1 {
                return;
            }
            self.locked_tokens += one.device.unwrap_or(0);
            let parent = one.parent;
            self.refile(at);
            at = parent;
        }
    }

    /// Ends one [`Cache::lock`] of `node`.
    pub fn unlock(&mut self, node: NodeId) {
        let mut at = node;
        while at != ROOT {
            let one = &mut self.nodes[at as usize];
            one.locks -= 1;
            if one.locks > 0 {
                return;
            }
            self.locked_tokens -= one.device.unwrap_or(0);
            let parent = one.parent;
            self.refile(at);
            at = parent;
        }
    }

    /// Files the first `total` tokens of `spans`, all of them computed, and returns the deepest node
    /// and the tokens filed on the path to it.
    ///
    /// A last span that lacks one token (the token just sampled has no KV yet) is filed without it;
    /// one that lacks more is left out. The caller has the room: the tokens were its own.
    pub fn insert(&mut self, spans: &[Span], total: u64, session: Option<u64>) -> (NodeId, u64) {
        self.uses += 1;
        let (mut parent, mut start, mut held) = (ROOT, 0, 0);
        for span in spans {
            let end = start + span.tokens;
            if total + 1 < end {
                break;
            }
            let tokens = self.whole_pages(end.min(total)) - self.whole_pages(start);
            let node = match self.by_id.get(&span.id) {
                Some(&node) => node,
                None => self.adopt(parent, span, start),
            };
            self.fill(node, tokens);
            self.nodes[node as usize].touched = self.uses;
            held += self.nodes[node as usize].device.unwrap_or(0);
            self.refile(parent);
            self.refile(node);
            parent = node;
            start = end;
        }
        if let Some(session) = session {
            self.tag(parent, session);
        }
        (parent, held)
    }

    /// Forgets everything. The caller holds no lock.
    pub fn clear(&mut self) {
        let counts = self.counts;
        *self = Self::new(self.page, self.chunk, self.host_capacity, self.write_policy);
        self.counts = counts;
    }

    /// A new child of `parent`, resident nowhere yet; a short last block gives way to it.
    fn adopt(&mut self, parent: NodeId, span: &Span, start: u64) -> NodeId {
        if let Some(tail) = self.nodes[parent as usize].tail {
            let node = &self.nodes[tail as usize];
            if node.locks == 0 && node.children.is_empty() {
                self.drop_subtree(tail);
            }
        }
        let fresh = Node {
            id: span.id,
            parent,
            filed: (self.uses, start / self.chunk),
            ..Node::default()
        };
        let node = if let Some(node) = self.vacant.pop() {
            self.nodes[node as usize] = fresh;
            node
        } else {
            self.nodes.push(fresh);
            NodeId::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes")
        };
        self.by_id.insert(span.id, node);
        self.nodes[parent as usize].children.push(node);
        if span.partial {
            self.nodes[parent as usize].tail = Some(node);
        }
        node
    }

    /// Recounts everything from nothing. For tests.
    ///
    /// # Panics
    /// Where a count does not add up.
    pub fn check(&self) {
        let (mut device, mut locked, mut host) = (0, 0, 0);
        for &index in self.by_id.values() {
            let node = &self.nodes[index as usize];
            let parent = &self.nodes[node.parent as usize];
            device += node.device.unwrap_or(0);
            host += node.host.unwrap_or(0);
            if node.locks > 0 {
                locked += node.device.unwrap_or(0);
            }
            assert!(
                node.device.is_some() || node.host.is_some(),
                "a node that is nowhere"
            );
            assert!(
                node.device.is_none() || parent.device.is_some(),
                "device prefix is broken"
            );
            assert!(node.device.is_some() || parent.host.is_some() || parent.device.is_some());
            assert!(
                parent.children.contains(&index),
                "a child its parent does not know"
            );
            assert!(
                node.host_rank.is_none() || node.device.is_none(),
                "filed where it is not"
            );
        }
        assert_eq!(device, self.device_tokens, "device tokens");
        assert_eq!(locked, self.locked_tokens, "locked tokens");
        assert_eq!(host, self.host_tokens, "host tokens");
        assert!(host <= self.host_capacity, "host over capacity");
    }

    fn whole_pages(&self, tokens: u64) -> u64 {
        tokens - tokens % self.page
    }
}
