//! Where a node's tokens sit, and what leaves when room is needed.

use super::{Cache, NodeId, ROOT};

/// When a node is copied to the host. Source: `--hicache-write-policy` of `SGLang` 0.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePolicy {
    /// At once: the host mirrors the device, and eviction is free.
    Through,
    /// When the device drops it: eviction waits for the copy.
    Back,
}

impl Cache {
    /// Drops unlocked leaves until at least `tokens` are freed or nothing is left to drop. A leaf
    /// takes with it what was filed with it and has become a leaf: a real radix tree holds that as
    /// one node, which goes whole.
    ///
    /// Returns the tokens copied to the host on the way, which took time.
    pub fn evict(&mut self, tokens: u64) -> u64 {
        let (mut freed, mut copied) = (0, 0);
        while freed < tokens {
            let Some(&(_, _, leaf)) = self.device_order.first() else {
                break;
            };
            let filed = self.nodes[leaf as usize].filed;
            let mut at = leaf;
            while self.nodes[at as usize].device_rank.is_some()
                && self.nodes[at as usize].filed == filed
            {
                let one = &self.nodes[at as usize];
                let (held, parent) = (one.device.unwrap_or(0), one.parent);
                if self.write_policy == WritePolicy::Back {
                    copied += self.back_up(at, held);
                }
                freed += held;
                self.counts.evicted += held;
                self.leave_device(at);
                at = parent;
            }
        }
        copied
    }

    /// Brings the host run that ends at `deepest` back to the device. The caller made the room.
    pub fn load_back(&mut self, deepest: NodeId) {
        let mut path = Vec::new();
        let mut at = deepest;
        while self.nodes[at as usize].device.is_none() {
            path.push(at);
            at = self.nodes[at as usize].parent;
        }
        for &node in path.iter().rev() {
            let tokens = self.nodes[node as usize].host.unwrap_or(0);
            self.counts.loaded_back += tokens;
            self.fill(node, tokens);
            self.refile(self.nodes[node as usize].parent);
            self.refile(node);
        }
    }

    /// Makes `tokens` of `node` device-resident, or more of them than were.
    pub(super) fn fill(&mut self, node: NodeId, tokens: u64) {
        let one = &mut self.nodes[node as usize];
        let before = one.device;
        if before.is_some_and(|held| held >= tokens) {
            return;
        }
        let added = tokens - before.unwrap_or(0);
        one.device = Some(tokens);
        let (locked, parent) = (one.locks > 0, one.parent);
        self.device_tokens += added;
        if locked {
            self.locked_tokens += added;
        }
        if before.is_none() {
            self.nodes[parent as usize].device_children += 1;
        }
        // Filed first: making room on the host must not find this node among the host's leaves.
        self.refile(node);
        if self.write_policy == WritePolicy::Through {
            self.back_up(node, tokens);
        }
    }

    /// Copies `tokens` of `node` to the host if its parent is there and there is room; returns how
    /// many were copied.
    fn back_up(&mut self, node: NodeId, tokens: u64) -> u64 {
        let one = &self.nodes[node as usize];
        let missing = tokens - one.host.unwrap_or(0).min(tokens);
        if self.host_capacity == 0 || (missing == 0 && one.host.is_some()) {
            return 0;
        }
        let orphan = self.write_policy == WritePolicy::Through
            && self.nodes[one.parent as usize].host.is_none();
        if orphan || !self.make_host_room(missing) {
            return 0;
        }
        self.nodes[node as usize].host = Some(tokens);
        self.host_tokens += missing;
        self.counts.backed_up += missing;
        missing
    }

    /// Drops least recently used host-only leaves until `tokens` fit.
    fn make_host_room(&mut self, tokens: u64) -> bool {
        while self.host_tokens + tokens > self.host_capacity {
            let Some(&(_, node)) = self.host_order.first() else {
                return false;
            };
            self.counts.host_evicted += self.nodes[node as usize].host.unwrap_or(0);
            self.drop_subtree(node);
        }
        true
    }

    /// Takes `node` off the device; without a host copy it is gone, and all below it.
    fn leave_device(&mut self, node: NodeId) {
        if self.nodes[node as usize].host.is_none() {
            self.drop_subtree(node);
            return;
        }
        let one = &mut self.nodes[node as usize];
        let parent = one.parent;
        self.device_tokens -= one.device.take().unwrap_or(0);
        self.nodes[parent as usize].device_children -= 1;
        self.refile(node);
        self.refile(parent);
    }

    /// Removes `node` and all below it from both tiers. Nothing there is locked.
    pub(super) fn drop_subtree(&mut self, node: NodeId) {
        while let Some(&child) = self.nodes[node as usize].children.last() {
            self.drop_subtree(child);
        }
        self.hand_tags_up(node);
        let one = &mut self.nodes[node as usize];
        let (parent, id) = (one.parent, one.id);
        let device = one.device.take();
        let host = one.host.take();
        self.refile(node);
        self.device_tokens -= device.unwrap_or(0);
        self.host_tokens -= host.unwrap_or(0);
        let above = &mut self.nodes[parent as usize];
        if device.is_some() {
            above.device_children -= 1;
        }
        above.children.retain(|&child| child != node);
        if above.tail == Some(node) {
            above.tail = None;
        }
        self.by_id.remove(&id);
        self.vacant.push(node);
        self.refile(parent);
    }

    /// Puts `node` at its place in the eviction orders, or takes it out of them.
    pub(super) fn refile(&mut self, node: NodeId) {
        let one = &mut self.nodes[node as usize];
        let device =
            (node != ROOT && one.device.is_some() && one.device_children == 0 && one.locks == 0)
                .then_some((one.open > 0, one.touched));
        if device != one.device_rank {
            if let Some((open, touched)) = one.device_rank {
                self.device_order.remove(&(open, touched, node));
            }
            if let Some((open, touched)) = device {
                self.device_order.insert((open, touched, node));
            }
            one.device_rank = device;
        }
        let host = (node != ROOT
            && one.host.is_some()
            && one.device.is_none()
            && one.locks == 0
            && one.children.is_empty())
        .then_some(one.touched);
        if host != one.host_rank {
            if let Some(touched) = one.host_rank {
                self.host_order.remove(&(touched, node));
            }
            if let Some(touched) = host {
                self.host_order.insert((touched, node));
            }
            one.host_rank = host;
        }
    }
}
