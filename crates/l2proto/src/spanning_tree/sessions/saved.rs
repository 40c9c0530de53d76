//! States of sessions on their way to another process. Each has the values of its bridge, so any of them may be the first.

use super::{Group, Session, Sessions, Tree};
use crate::protocol::SessionId;
use crate::saved::{Former, Object, bound_counts, get, line, put};
use crate::spanning_tree::config::{BridgeSettings, RSTP_PORT_MAX, Settings};
use crate::spanning_tree::{rstp, stp};
use std::collections::BTreeMap;

/// Words of the two protocols.
const WORDS: [&str; 2] = ["stp", "rstp"];

/// A state that is right in itself.
fn check(former: &Former) -> Result<(), String> {
    let then_ms = former.then_ms;
    let word: String = get(&former.object, "protocol", then_ms, String::new())?;
    // A port outside of the tree has nothing more.
    if word.is_empty() {
        return Ok(());
    }
    let mut tree = match Settings::plain(word == WORDS[1]).bridge {
        BridgeSettings::Stp(_, settings) => Tree::Stp(stp::Bridge::new("", &settings, then_ms)),
        BridgeSettings::Rstp(_, settings) => Tree::Rstp(rstp::Bridge::new(&settings, then_ms)),
    };
    tree.restore(former, then_ms)?;
    tree.restore_port(SessionId(0), former, then_ms)
}

impl Tree {
    fn word(&self) -> &'static str {
        match self {
            Tree::Stp(_) => WORDS[0],
            Tree::Rstp(_) => WORDS[1],
        }
    }

    fn ports(&self) -> usize {
        match self {
            Tree::Stp(bridge) => bridge.ports.len(),
            Tree::Rstp(bridge) => bridge.ports.len(),
        }
    }

    fn root_port(&self) -> Option<SessionId> {
        match self {
            Tree::Stp(bridge) => bridge.root_port,
            Tree::Rstp(bridge) => bridge.root_port,
        }
    }

    fn has_port(&self, id: SessionId) -> bool {
        match self {
            Tree::Stp(bridge) => bridge.ports.contains_key(&id),
            Tree::Rstp(bridge) => bridge.ports.contains_key(&id),
        }
    }

    fn restore(&mut self, former: &Former, now_ms: u64) -> Result<(), String> {
        match self {
            Tree::Stp(bridge) => bridge.restore(former),
            Tree::Rstp(bridge) => bridge.restore(former, now_ms),
        }
    }

    fn restore_port(&mut self, id: SessionId, former: &Former, now_ms: u64) -> Result<(), String> {
        match self {
            Tree::Stp(bridge) => bridge.restore_port(id, former, now_ms),
            Tree::Rstp(bridge) => bridge.restore_port(id, former),
        }
    }

    fn go_on(&mut self, is_whole: bool, now_ms: u64) {
        match self {
            Tree::Stp(bridge) => bridge.go_on(now_ms),
            Tree::Rstp(bridge) => bridge.go_on(is_whole),
        }
    }
}

/// Gives a tree the values and ports of a former one: those that take part and that it does not have.
pub(super) fn continue_tree(
    tree: &mut Tree,
    formers: Vec<(SessionId, Former)>,
    numbers: &BTreeMap<SessionId, u16>,
    now_ms: u64,
) {
    let (mut is_first, mut expected) = (tree.ports() == 0, None);
    let mut continues = false;
    for (id, former) in formers {
        let word = get(&former.object, "protocol", former.then_ms, String::new());
        let is_known = word.as_deref() == Ok(tree.word()) && numbers.contains_key(&id) && !tree.has_port(id);
        if !is_known || !former.object.contains_key("port") {
            continue;
        }
        if std::mem::take(&mut is_first) && tree.restore(&former, now_ms).is_err() {
            return;
        }
        expected = expected.or_else(|| get(&former.object, "ports", former.then_ms, 0u32).ok());
        continues |= tree.restore_port(id, &former, now_ms).is_ok();
    }
    if continues {
        let is_whole = expected.is_some_and(|expected| expected as usize == tree.ports());
        tree.go_on(is_whole, now_ms);
    }
}

impl Session {
    /// Takes number and counters of a former session of that bridge; its tree follows with the next work.
    pub(super) fn go_on(&mut self, former: Former) {
        let then_ms = former.then_ms;
        let bridge: Result<String, String> = get(&former.object, "name", then_ms, String::new());
        if bridge.as_deref() != Ok(&self.port.bridge) {
            return;
        }
        let number = get(&former.object, "number", then_ms, None).ok().flatten();
        self.number = number.filter(|number| (1..=RSTP_PORT_MAX).contains(number));
        let count = |name| get(&former.object, name, then_ms, 0u64).unwrap_or(0);
        (self.rx, self.tx, self.errors) = (count("rx"), count("tx"), count("errors"));
        bound_counts([&mut self.rx, &mut self.tx, &mut self.errors]);
        self.former = Some(former);
    }
}

impl Sessions {
    /// The state of a session for another process.
    pub(in crate::spanning_tree) fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        let session = self.sessions.get(&id)?;
        let mut object = Object::new();
        put(&mut object, "name", &session.port.bridge, now_ms);
        put(&mut object, "number", &session.number, now_ms);
        for (name, count) in [("rx", session.rx), ("tx", session.tx), ("errors", session.errors)] {
            put(&mut object, name, &count, now_ms);
        }
        let group = self.groups.get(&session.port.bridge);
        if let Some(Group { tree: Some(tree), .. }) = group {
            put(&mut object, "protocol", &tree.word().to_string(), now_ms);
            put(&mut object, "ports", &(tree.ports() as u32), now_ms);
            put(&mut object, "is_root_port", &(tree.root_port() == Some(id)), now_ms);
            match tree {
                Tree::Stp(bridge) => bridge.save(id, &mut object, now_ms),
                Tree::Rstp(bridge) => bridge.save(id, &mut object, now_ms),
            }
        }
        Some(line(object))
    }

    /// Keeps the state of a former session.
    pub(in crate::spanning_tree) fn restore(
        &mut self,
        interface: &str,
        text: &str,
        then_ms: u64,
    ) -> Result<(), String> {
        let former = Former::parse(text, then_ms)?;
        check(&former)?;
        self.formers.put(interface, former)
    }

    pub(in crate::spanning_tree) fn forget_restored(&mut self) -> Vec<String> {
        self.formers.drain()
    }
}
