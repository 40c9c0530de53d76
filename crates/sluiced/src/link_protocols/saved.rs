//! Sessions on their way to another process.
//!
//! The process that ends calls [`LinkProtocols::hold`], then [`LinkProtocols::saved`]; if the other one fails,
//! [`LinkProtocols::go_on`]. The process that begins calls [`LinkProtocols::restore`] before the first bridge has ports, and
//! [`LinkProtocols::end_restore`] once the carriers of all ports are known. In between, sessions that go on from a former one
//! have the addresses, carriers and speeds of before: the first values of a new port would move roles in a tree.
//!
//! A text is an object of JSON in one line: version, port, effect and the state of the engine ([`l2proto::protocol::Engine`]).

use super::{Attached, Configure, LinkProtocols, Request, SessionName};
use crate::instances::Instance;
use flow::MacAddr;
use l2proto::Protocol;
use l2proto::protocol::{LinkPort, LinkState, TreePhase, TreeState};
use ofproto::ports::BridgeId;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::sync_channel;

/// Version of the text. A reader takes no other one: additions are fields.
const VERSION: u64 = 1;
/// Names in the line about states that no session has taken, at most.
const NAMED_MAX: usize = 10;

/// A session on its way to another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SavedSession {
    /// Its interface.
    pub(crate) interface: String,
    /// The name of its protocol.
    pub(crate) protocol: String,
    /// Its state: one line without tabs.
    pub(crate) text: String,
}

/// The port of a former session, and its effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FormerLink {
    port: LinkPort,
    state: LinkState,
}

const PHASES: [(&str, TreePhase); 5] = [
    ("disabled", TreePhase::Disabled),
    ("blocking", TreePhase::Blocking),
    ("listening", TreePhase::Listening),
    ("learning", TreePhase::Learning),
    ("forwarding", TreePhase::Forwarding),
];

impl SavedSession {
    /// The state of a session; `session` is that of its engine.
    pub(super) fn new(protocol: Protocol, port: &LinkPort, state: LinkState, session: &str) -> SavedSession {
        let tree = state.tree.map(|tree| {
            let phase = PHASES.iter().find(|(_, phase)| *phase == tree.phase).map(|(word, _)| *word);
            json!({ "rapid": tree.is_rapid, "phase": phase })
        });
        let LinkState { may_forward, may_learn, is_live, is_negotiated, tree: _ } = state;
        let text = json!({
            "version": VERSION,
            "port": {
                "bridge": port.bridge,
                "mac": port.mac.to_string(),
                "bridge_mac": port.bridge_mac.to_string(),
                "up": port.is_up,
                "speed_mbps": port.speed_mbps,
                "full_duplex": port.is_full_duplex,
            },
            "effect": {
                "forward": may_forward,
                "learn": may_learn,
                "live": is_live,
                "negotiated": is_negotiated,
                "tree": tree,
            },
            "session": session,
        });
        SavedSession {
            interface: port.interface.clone(),
            protocol: protocol.name().to_string(),
            text: text.to_string(),
        }
    }

    /// Its protocol, its port and effect, and the state of its engine.
    ///
    /// # Errors
    /// The fault of the text.
    pub(super) fn parse(&self) -> Result<(Protocol, FormerLink, String), String> {
        let protocol = Protocol::ALL.iter().find(|protocol| protocol.name() == self.protocol);
        let protocol = *protocol.ok_or_else(|| format!("no link protocol has the name {}", self.protocol))?;
        if self.text.len() > 2 * l2proto::TEXT_BYTES_MAX {
            return Err(format!("a state of {} bytes", self.text.len()));
        }
        let value: Value = serde_json::from_str(&self.text).map_err(|e| format!("no JSON: {e}"))?;
        match value.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            other => return Err(format!("a state of version {other:?}, not {VERSION}")),
        }
        let object =
            |name: &str| value.get(name).and_then(Value::as_object).ok_or(format!("{name}: no object"));
        let (port, effect) = (object("port")?, object("effect")?);
        let session = value.get("session").and_then(Value::as_str).ok_or("session: no text")?;
        let mac = |name: &str| text(port, name).and_then(MacAddr::parse).unwrap_or_default();
        let former = FormerLink {
            port: LinkPort {
                interface: self.interface.clone(),
                port: String::new(),
                bridge: text(port, "bridge").unwrap_or_default().to_string(),
                of_port: flow::OfPort::NONE,
                mac: mac("mac"),
                bridge_mac: mac("bridge_mac"),
                is_up: flag(port, "up", true),
                speed_mbps: port.get("speed_mbps").and_then(Value::as_u64).unwrap_or(0) as u32,
                is_full_duplex: flag(port, "full_duplex", false),
            },
            state: state_of(effect, protocol),
        };
        Ok((protocol, former, session.to_string()))
    }
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

fn flag(object: &Map<String, Value>, name: &str, start: bool) -> bool {
    object.get(name).and_then(Value::as_bool).unwrap_or(start)
}

fn state_of(effect: &Map<String, Value>, protocol: Protocol) -> LinkState {
    let start = protocol.initial_state();
    let tree = effect.get("tree").and_then(Value::as_object).and_then(|tree| {
        let word = text(tree, "phase")?;
        let phase = PHASES.iter().find(|(known, _)| *known == word).map(|(_, phase)| *phase)?;
        Some(TreeState { is_rapid: flag(tree, "rapid", false), phase })
    });
    LinkState {
        may_forward: flag(effect, "forward", start.may_forward),
        may_learn: flag(effect, "learn", start.may_learn),
        is_live: flag(effect, "live", start.is_live),
        is_negotiated: flag(effect, "negotiated", start.is_negotiated),
        tree,
    }
}

impl FormerLink {
    /// The effect of the session as long as its engine has told nothing: only on the same bridge, in a tree of the same kind.
    pub(super) fn state(&self, port: &LinkPort, initial: LinkState) -> Option<LinkState> {
        let kind = |state: LinkState| state.tree.map(|tree| tree.is_rapid);
        (self.port.bridge == port.bridge && kind(self.state) == kind(initial)).then_some(self.state)
    }

    /// The port as it was.
    pub(super) fn port(&self, port: LinkPort) -> LinkPort {
        if self.port.bridge != port.bridge {
            return port;
        }
        let LinkPort { mac, bridge_mac, is_up, speed_mbps, is_full_duplex, .. } = self.port;
        LinkPort { mac, bridge_mac, is_up, speed_mbps, is_full_duplex, ..port }
    }
}

/// The reason for a refused session.
fn refusal(interface: &str, protocol: &str, why: &str) -> String {
    format!("{interface} ({protocol}): {why}")
}

/// A fuzz target: the name of a protocol in a line, and any text as the state of its session.
pub(crate) fn fuzz_saved_session(bytes: &[u8]) {
    let Ok(whole) = std::str::from_utf8(bytes) else { return };
    let Some((protocol, text)) = whole.split_once('\n') else { return };
    let (protocol, text) = (protocol.to_string(), text.to_string());
    let saved = SavedSession { interface: "p".to_string(), protocol, text };
    let Ok((protocol, former, session)) = saved.parse() else { return };
    let again = SavedSession::new(protocol, &former.port, former.state, &session);
    assert_eq!(again.parse(), Ok((protocol, former, session)));
}

impl LinkProtocols {
    /// Stops the thread: what is due now is done, then it neither sends, nor takes packets, nor follows time. Received
    /// packets wait, up to the limit of each session. Commands work.
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn hold(&self) -> Result<(), String> {
        if self.thread.is_none() {
            return Ok(());
        }
        self.shared.ask(Request::Hold)
    }

    /// Stops the thread as soon as it starts.
    pub(crate) fn hold_from_start(&self) {
        // Nobody waits for the answer.
        let (answer, _) = sync_channel(1);
        self.shared.send(Request::Hold(answer));
    }

    /// Ends [`LinkProtocols::hold`].
    pub(crate) fn go_on(&self) {
        self.shared.send(Request::GoOn);
    }

    /// The states of all sessions, after [`LinkProtocols::hold`].
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn saved(&self) -> Result<Vec<SavedSession>, String> {
        if self.thread.is_none() {
            return Ok(Vec::new());
        }
        let names: BTreeMap<SessionName, LinkPort> =
            self.attached.iter().map(|(name, attached)| (name.clone(), attached.port.clone())).collect();
        self.shared.ask(|answer| Request::Save(names, answer))
    }

    /// Takes the states of former sessions, before the first ports are attached. `saved_ago_ms`: time since
    /// [`LinkProtocols::saved`]. Returns the reasons for those that are refused.
    pub(crate) fn restore(&mut self, sessions: Vec<SavedSession>, saved_ago_ms: u64) -> Vec<String> {
        let (mut refused, mut texts) = (Vec::new(), Vec::new());
        for session in sessions {
            match session.parse() {
                Ok((protocol, former, text)) => {
                    let name = (session.interface, protocol);
                    self.formers.insert(name.clone(), former);
                    texts.push((name, text));
                }
                Err(why) => refused.push(refusal(&session.interface, &session.protocol, &why)),
            }
        }
        if texts.is_empty() {
            return refused;
        }
        self.start();
        match self.shared.ask(|answer| Request::Restore(texts, saved_ago_ms, answer)) {
            Ok(by_engine) => {
                for ((interface, protocol), why) in by_engine {
                    refused.push(refusal(&interface, protocol.name(), &why));
                    self.formers.remove(&(interface, protocol));
                }
            }
            Err(why) => {
                self.formers.clear();
                refused.push(why);
            }
        }
        refused
    }

    /// Has sessions begin anew with later states than those of [`LinkProtocols::restore`], before the thread goes on. Returns the
    /// reasons for those that are refused.
    pub(crate) fn renew(&mut self, sessions: Vec<SavedSession>, saved_ago_ms: u64) -> Vec<String> {
        let (mut refused, mut renewals) = (Vec::new(), Vec::new());
        for session in sessions {
            match session.parse() {
                Ok((protocol, former, text)) => {
                    let name = (session.interface, protocol);
                    let Some(attached) = self.attached.get(&name) else { continue };
                    let Attached { settings, port, target, session, .. } = attached.clone();
                    self.formers.insert(name, former);
                    let configure = Configure { settings, port, target, session, rx_packets: 0 };
                    renewals.push((text, configure));
                }
                Err(why) => refused.push(refusal(&session.interface, &session.protocol, &why)),
            }
        }
        if renewals.is_empty() {
            return refused;
        }
        match self.shared.ask(|answer| Request::Renew(renewals, saved_ago_ms, answer)) {
            Ok(by_engine) => {
                let reason = |((interface, protocol), why): (SessionName, String)| {
                    refusal(&interface, protocol.name(), &why)
                };
                refused.extend(by_engine.into_iter().map(reason));
            }
            Err(why) => refused.push(why),
        }
        refused
    }

    /// The carriers of all ports are known: sessions follow the present values of their ports, and states that no session
    /// has taken are dropped.
    pub(crate) fn end_restore<'i>(&mut self, find: impl Fn(BridgeId) -> Option<&'i Instance>) {
        let formers = std::mem::take(&mut self.formers);
        if formers.is_empty() {
            return;
        }
        let bridges: BTreeSet<BridgeId> = self.attached.values().map(|a| a.target.bridge).collect();
        for bridge in bridges {
            let Some(instance) = find(bridge) else { continue };
            let view = instance.backer.view();
            if let Some(b) = view.bridge(bridge) {
                self.ports_changed(bridge, instance, &b.ports);
            }
        }
        self.shared.send(Request::ForgetRestored);
        let is_gone = |name: &&SessionName| !self.attached.contains_key(*name);
        let gone: Vec<String> = formers
            .keys()
            .filter(is_gone)
            .map(|(interface, protocol)| format!("{interface} ({})", protocol.name()))
            .collect();
        if !gone.is_empty() {
            let (count, named) = (gone.len(), gone[..gone.len().min(NAMED_MAX)].join(", "));
            let more = if count > NAMED_MAX { ", ..." } else { "" };
            log::info!(
                target: "bridge",
                "dropped the states of {count} former link sessions that no interface has: {named}{more}"
            );
        }
    }
}
