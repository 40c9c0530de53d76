//! CFM as a row of the registry of link protocols.

use super::config::Config;
use super::message::{DST_MAC, DST_MAC_EXTENDED, ETH_TYPE_CFM, FRAME_BYTES_MAX, MESSAGE_BYTES};
use super::session::{MODULE, Session};
use crate::protocol::{
    ColumnKind, Columns, Engine, Environment, IgnoredSetting, LinkPort, LinkProtocol, LinkState, Liveness,
    ProtocolCommand, Received, Report, RxUse, SessionId, Status, StatusColumn, Table, Transmission,
};
use crate::saved::{Former, Formers, Nothing};
use crate::slots::Slots;
use flow::{Flow, FlowKey, MacAddr, Mask};

/// All sessions of a switch.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Slots<Session>,
    formers: Formers,
}

/// The settings that select the packets of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Whether its messages are extended, with an address of their own.
    pub is_extended: bool,
}

const fn column(name: &'static str, kind: ColumnKind) -> StatusColumn {
    StatusColumn { table: Table::Interface, name, kind, is_statistics: false }
}

impl LinkProtocol for Sessions {
    const NAME: &'static str = MODULE;
    const OVS_SLOW_PATH: u32 = 1;
    const SLOW_PATH_TEXT: &'static str = "Consists of CFM packets.";
    /// Whole frames: messages name the source.
    const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX;
    const STATUS_COLUMNS: &'static [StatusColumn] = &[
        column("cfm_fault", ColumnKind::Optional),
        column("cfm_fault_status", ColumnKind::Set),
        column("cfm_flap_count", ColumnKind::Optional),
        column("cfm_health", ColumnKind::Optional),
        column("cfm_remote_mpids", ColumnKind::Set),
        column("cfm_remote_opstate", ColumnKind::Optional),
    ];
    const LOST_COUNTER: &'static str = "cfm_queue_full";
    const INITIAL_STATE: LinkState = LinkState::UP;
    const LIVENESS: Liveness = Liveness::Monitor;
    const GATES_TRAFFIC: bool = false;
    const COMMANDS: &'static [ProtocolCommand<Sessions>] = &[
        ProtocolCommand {
            name: "cfm/set-fault",
            arguments: "[interface] normal|false|true",
            min_args: 1,
            max_args: 2,
            help: "override the fault of CFM sessions; normal ends the override",
            run: set_fault,
        },
        ProtocolCommand {
            name: "cfm/show",
            arguments: "[interface]",
            min_args: 0,
            max_args: 1,
            help: "show the CFM sessions of all interfaces or one",
            run: show,
        },
    ];

    type Settings = Config;
    type Claim = Claim;

    fn is_control_packet(key: &FlowKey) -> bool {
        key.base.dl_type == ETH_TYPE_CFM
    }

    fn parse(columns: &dyn Columns) -> (Option<Config>, Vec<IgnoredSetting>) {
        Config::parse(columns)
    }

    fn claim(config: &Config) -> Claim {
        Claim { is_extended: config.is_extended }
    }

    fn claims(claim: &Claim, flow: &Flow, mask: &mut Mask) -> bool {
        (mask.0.dl_dst, mask.0.dl_type) = ([0xff; 6], u16::MAX);
        let address = if claim.is_extended { DST_MAC_EXTENDED } else { DST_MAC };
        flow.dl_type == ETH_TYPE_CFM && flow.dl_dst() == address
    }

    fn payload(frame: &[u8]) -> Option<&[u8]> {
        Some(frame)
    }

    fn rx_use(config: &Config) -> RxUse {
        RxUse { by_flows: false, by_device: config.is_demand }
    }

    fn configure(
        &mut self,
        port: &LinkPort,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> SessionId {
        if let Some(id) = self.slots.find(&port.interface) {
            self.slots.with(id, |session| session.configure(port.mac, config.clone(), now_ms, env));
            return id;
        }
        let place = (self.slots.next_id(), port.interface.as_str());
        let former = self.formers.take(&port.interface);
        let continued = former.and_then(|former| {
            Session::continued(place, port.mac, config.clone(), &former, now_ms, env).ok()
        });
        let session = continued.unwrap_or_else(|| Session::new(place, port.mac, config.clone(), now_ms, env));
        self.slots.add(&port.interface, session)
    }
}

impl Engine for Sessions {
    fn find(&self, name: &str) -> Option<SessionId> {
        self.slots.find(name)
    }

    fn remove(&mut self, id: SessionId) {
        self.slots.remove(id);
    }

    fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        now_ms: u64,
        _: &mut dyn Environment,
    ) -> Result<(), String> {
        // The session logs bad messages itself, at a limited rate.
        self.slots.with(id, |session| session.input(received.payload.unwrap_or_default(), now_ms));
        Ok(())
    }

    fn account_rx(&mut self, _: SessionId, _: u64, _: u64) {}

    fn tick(
        &mut self,
        now_ms: u64,
        limit: usize,
        env: &mut dyn Environment,
        out: &mut Vec<(SessionId, Transmission)>,
    ) -> bool {
        for _ in 0..limit {
            let Some(id) = self.slots.due(now_ms) else { return false };
            let frame = self.slots.with(id, |session| {
                let frame = session.poll_transmit(now_ms, env);
                session.tick(now_ms, env);
                frame
            });
            out.extend(frame.flatten().map(|frame| {
                let header_bytes = frame.len() - MESSAGE_BYTES;
                (id, Transmission { frame: frame.into(), header_bytes, oam: false })
            }));
        }
        self.slots.due(now_ms).is_some()
    }

    fn next_wakeup(&self) -> Option<u64> {
        self.slots.next_wakeup()
    }

    fn take_report(&mut self) -> Option<Report> {
        let id = self.slots.pop_changed()?;
        let (lines, lines_lost, status_changed) = self.slots.with(id, Session::take_changes)?;
        Some(Report { status_changed, lines, lines_lost, ..Report::of(id) })
    }

    fn link_state(&mut self, id: SessionId, _: u64) -> LinkState {
        LinkState { is_live: self.slots.get(id).is_none_or(Session::is_live), ..LinkState::UP }
    }

    fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        self.slots.get(id).map(|session| session.saved(now_ms))
    }

    fn restore(&mut self, interface: &str, text: &str, then_ms: u64) -> Result<(), String> {
        let former = Former::parse(text, then_ms)?;
        let place = (SessionId(0), interface);
        Session::continued(place, MacAddr::default(), Config::new(1), &former, then_ms, &mut Nothing)?;
        self.formers.put(interface, former)
    }

    fn forget_restored(&mut self) -> Vec<String> {
        self.formers.drain()
    }

    fn status(&mut self, id: SessionId, _: u64) -> Status {
        self.slots.get(id).map(Session::status).unwrap_or_default()
    }
}

fn one_or_all(sessions: &Sessions, name: Option<&String>) -> Result<Vec<SessionId>, String> {
    match name {
        None => Ok(sessions.slots.ids()),
        Some(name) => match sessions.slots.find(name) {
            Some(id) => Ok(vec![id]),
            None => Err("no such CFM object".to_string()),
        },
    }
}

fn show(sessions: &mut Sessions, args: &[String], now_ms: u64) -> Result<String, String> {
    let ids = one_or_all(sessions, args.first())?;
    Ok(ids.into_iter().filter_map(|id| sessions.slots.get(id)).map(|session| session.show(now_ms)).collect())
}

fn set_fault(sessions: &mut Sessions, args: &[String], _: u64) -> Result<String, String> {
    let (choice, name) = match args {
        [name, choice] => (choice, Some(name)),
        [choice] => (choice, None),
        _ => return Err("unknown fault string".to_string()),
    };
    let choices = [("normal", None), ("false", Some(false)), ("true", Some(true))];
    let chosen = choices.into_iter().find(|(word, _)| word.eq_ignore_ascii_case(choice));
    let (_, forced) = chosen.ok_or("unknown fault string")?;
    for id in one_or_all(sessions, name)? {
        sessions.slots.with(id, |session| session.set_fault(forced));
    }
    Ok("OK".to_string())
}
