//! A protocol added by a third party: it needs only this file and a row of the list.

use crate::protocol::*;
use flow::{Flow, FlowKey, Mask};
use std::collections::BTreeMap;

/// EtherType of its frames.
pub(super) const ETH_TYPE: u16 = 0x88b5;
/// Bytes of a frame.
const FRAME_BYTES: usize = 60;

/// Whether ports begin open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    is_open: bool,
}

/// Every frame of its EtherType.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim;

#[derive(Debug)]
struct Session {
    name: String,
    is_open: bool,
    has_sent: bool,
    has_changed: bool,
}

/// Sessions that open their port with the first packet.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    sessions: BTreeMap<SessionId, Session>,
    formers: BTreeMap<String, bool>,
}

fn show(all: &mut Strangers, _args: &[String], _now_ms: u64) -> Result<String, String> {
    Ok(all.sessions.values().map(|s| format!("{}: {}\n", s.name, text(s))).collect())
}

fn text(session: &Session) -> &'static str {
    if session.is_open { "open" } else { "blocked" }
}

impl LinkProtocol for Strangers {
    const NAME: &'static str = "stranger";
    const OVS_SLOW_PATH: u32 = 1 << 20;
    const SLOW_PATH_TEXT: &'static str = "Consists of the stranger's packets.";
    const PAYLOAD_BYTES_MAX: usize = 4;
    const STATUS_COLUMNS: &'static [StatusColumn] = &[StatusColumn {
        table: Table::Port,
        name: "stranger_status",
        kind: ColumnKind::Optional,
        is_statistics: true,
    }];
    const LOST_COUNTER: &'static str = "stranger_queue_full";
    const INITIAL_STATE: LinkState = LinkState { may_forward: false, may_learn: false, ..LinkState::UP };
    const LIVENESS: Liveness = Liveness::Required;
    const GATES_TRAFFIC: bool = true;
    const COMMANDS: &'static [ProtocolCommand<Strangers>] = &[ProtocolCommand {
        name: "stranger/show",
        arguments: "",
        min_args: 0,
        max_args: 0,
        help: "show the ports",
        run: show,
    }];

    type Settings = Settings;
    type Claim = Claim;

    fn is_control_packet(key: &FlowKey) -> bool {
        key.base.dl_type == ETH_TYPE
    }

    fn parse(columns: &dyn Columns) -> (Option<Settings>, Vec<IgnoredSetting>) {
        let is_enabled = columns.column(Table::Bridge, "stranger") == Some(LinkValue::Flag(true))
            && columns.column(Table::Interface, "stranger") == Some(LinkValue::Integer(7));
        let is_open = columns.column(Table::Port, "stranger") == Some(LinkValue::Text("open".to_string()));
        (is_enabled.then_some(Settings { is_open }), Vec::new())
    }

    fn claim(_: &Settings) -> Claim {
        Claim
    }

    fn claims(_: &Claim, flow: &Flow, mask: &mut Mask) -> bool {
        mask.0.dl_type = u16::MAX;
        flow.dl_type == ETH_TYPE
    }

    fn payload(frame: &[u8]) -> Option<&[u8]> {
        frame.get(14..)
    }

    fn rx_use(_: &Settings) -> RxUse {
        RxUse { by_flows: false, by_device: false }
    }

    fn configure(
        &mut self,
        port: &LinkPort,
        settings: &Settings,
        _: u64,
        _: &mut dyn Environment,
    ) -> SessionId {
        let id = self.find(&port.interface).unwrap_or(SessionId(self.sessions.len() as u32));
        let session = Session {
            name: port.interface.clone(),
            is_open: self.formers.remove(&port.interface).unwrap_or(settings.is_open),
            has_sent: false,
            has_changed: false,
        };
        self.sessions.insert(id, session);
        id
    }
}

impl Engine for Strangers {
    fn find(&self, name: &str) -> Option<SessionId> {
        self.sessions.iter().find(|(_, session)| session.name == name).map(|(id, _)| *id)
    }

    fn remove(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        _: u64,
        _: &mut dyn Environment,
    ) -> Result<(), String> {
        let session = self.sessions.get_mut(&id).ok_or("no such session")?;
        if received.payload != Some(b"open") {
            return Err("an unknown word".to_string());
        }
        (session.is_open, session.has_changed) = (true, true);
        Ok(())
    }

    fn account_rx(&mut self, _: SessionId, _: u64, _: u64) {}

    fn tick(
        &mut self,
        _: u64,
        limit: usize,
        _: &mut dyn Environment,
        out: &mut Vec<(SessionId, Transmission)>,
    ) -> bool {
        for (id, session) in self.sessions.iter_mut().filter(|(_, session)| !session.has_sent).take(limit) {
            session.has_sent = true;
            let frame = Box::new([0; FRAME_BYTES]);
            out.push((*id, Transmission { frame, header_bytes: FRAME_BYTES, oam: false }));
        }
        self.next_wakeup().is_some()
    }

    fn next_wakeup(&self) -> Option<u64> {
        self.sessions.values().any(|session| !session.has_sent).then_some(0)
    }

    fn take_report(&mut self) -> Option<Report> {
        let (id, session) = self.sessions.iter_mut().find(|(_, session)| session.has_changed)?;
        session.has_changed = false;
        Some(Report { status_changed: true, learned: vec![LearnedChange::FlushPort], ..Report::of(*id) })
    }

    fn link_state(&mut self, id: SessionId, _: u64) -> LinkState {
        let is_open = self.sessions.get(&id).is_none_or(|session| session.is_open);
        LinkState { may_forward: is_open, may_learn: is_open, ..LinkState::UP }
    }

    fn saved(&self, id: SessionId, _: u64) -> Option<String> {
        self.sessions.get(&id).map(|session| text(session).to_string())
    }

    fn restore(&mut self, interface: &str, saved: &str, _: u64) -> Result<(), String> {
        let is_open = match saved {
            "open" => true,
            "blocked" => false,
            _ => return Err("an unknown word".to_string()),
        };
        self.formers.insert(interface.to_string(), is_open);
        Ok(())
    }

    fn forget_restored(&mut self) -> Vec<String> {
        std::mem::take(&mut self.formers).into_keys().collect()
    }

    fn status(&mut self, id: SessionId, _: u64) -> Status {
        let text = self.sessions.get(&id).map(|session| LinkValue::Text(text(session).to_string()));
        text.map(|text| ((Table::Port, "stranger_status"), text)).into_iter().collect()
    }
}
