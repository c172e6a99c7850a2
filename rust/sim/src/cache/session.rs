//! Sessions: which leaves an open conversation still refers to.
//!
//! A session tags the node at which its conversation ends, and so refers to the whole path. Closing
//! it only takes the tags away: its KV stays until room is needed, and then goes before anybody
//! else's. Source: `--enable-session-radix-cache` of `SGLang` 0.5.23 as observed: a closed session's
//! KV was evicted first although it was the most recently used, and kept its host copy.

use super::{Cache, NodeId, ROOT};

impl Cache {
    /// Ends a session: nothing refers to its path any more.
    pub fn close(&mut self, session: u64) {
        for node in self.sessions.remove(&session).unwrap_or_default() {
            self.nodes[node as usize].tags.retain(|&tag| tag != session);
            self.release_open(node);
        }
    }

    /// The session's conversation now ends at `node`.
    pub(super) fn tag(&mut self, node: NodeId, session: u64) {
        if node == ROOT || self.nodes[node as usize].tags.contains(&session) {
            return;
        }
        self.nodes[node as usize].tags.push(session);
        self.sessions.entry(session).or_default().push(node);
        self.hold_open(node);
        // Its earlier ends on this path are covered by the new one.
        let mut above = self.nodes[node as usize].parent;
        while above != ROOT {
            if self.nodes[above as usize].tags.contains(&session) {
                self.untag(above, session);
            }
            above = self.nodes[above as usize].parent;
        }
    }

    /// Before `node` goes: the sessions that end there now end at its parent.
    pub(super) fn hand_tags_up(&mut self, node: NodeId) {
        let parent = self.nodes[node as usize].parent;
        for session in self.nodes[node as usize].tags.clone() {
            self.untag(node, session);
            if parent != ROOT && !self.nodes[parent as usize].tags.contains(&session) {
                self.nodes[parent as usize].tags.push(session);
                self.sessions.entry(session).or_default().push(parent);
                self.hold_open(parent);
            }
        }
    }

    fn untag(&mut self, node: NodeId, session: u64) {
        self.nodes[node as usize].tags.retain(|&tag| tag != session);
        if let Some(ends) = self.sessions.get_mut(&session) {
            ends.retain(|&end| end != node);
            if ends.is_empty() {
                self.sessions.remove(&session);
            }
        }
        self.release_open(node);
    }

    fn hold_open(&mut self, node: NodeId) {
        let mut at = node;
        while at != ROOT {
            let one = &mut self.nodes[at as usize];
            one.open += 1;
            if one.open > 1 {
                return;
            }
            let parent = one.parent;
            self.refile(at);
            at = parent;
        }
    }

    fn release_open(&mut self, node: NodeId) {
        let mut at = node;
        while at != ROOT {
            let one = &mut self.nodes[at as usize];
            one.open -= 1;
            if one.open > 0 {
                return;
            }
            let parent = one.parent;
            self.refile(at);
            at = parent;
        }
    }
}
