//! BFD as a row of the registry of link protocols.

use super::claim::Claim;
use super::config::Config;
use super::frame::{UDP_PORT, udp_payload};
use super::message::MESSAGE_BYTES;
use super::sessions::Sessions;
use super::{FRAME_BYTES, Transmission as BfdTransmission};
use crate::protocol::{
    ColumnKind, Columns, Engine, Environment, IgnoredSetting, LineLevel, LinkPort, LinkProtocol, LinkState,
    LinkValue, Liveness, LogLine, ProtocolCommand, Received, Report, RxUse, SessionId, Status, StatusColumn,
    Table, Transmission,
};
use flow::{Flow, FlowKey, Mask};
use packet::headers::{ETH_TYPE_IP, IPPROTO_UDP};
use std::collections::BTreeMap;

/// Column of the settings.
const COLUMN: &str = "bfd";
/// Column of the status.
const STATUS: &str = "bfd_status";

impl From<BfdTransmission> for Transmission {
    fn from(sent: BfdTransmission) -> Transmission {
        Transmission { frame: sent.frame.into(), header_bytes: FRAME_BYTES - MESSAGE_BYTES, oam: sent.oam }
    }
}

impl LinkProtocol for Sessions {
    const NAME: &'static str = "bfd";
    const OVS_SLOW_PATH: u32 = 2;
    const SLOW_PATH_TEXT: &'static str = "Consists of BFD packets.";
    /// The length field of a packet counts no more.
    const PAYLOAD_BYTES_MAX: usize = u8::MAX as usize;
    const STATUS_COLUMNS: &'static [StatusColumn] = &[StatusColumn {
        table: Table::Interface,
        name: STATUS,
        kind: ColumnKind::Map,
        is_statistics: false,
    }];
    const LOST_COUNTER: &'static str = "bfd_queue_full";
    const INITIAL_STATE: LinkState = LinkState { is_live: false, ..LinkState::UP };
    const LIVENESS: Liveness = Liveness::Monitor;
    const GATES_TRAFFIC: bool = false;
    const COMMANDS: &'static [ProtocolCommand<Sessions>] = &[
        ProtocolCommand {
            name: "bfd/set-forwarding",
            arguments: "[interface] normal|false|true",
            min_args: 1,
            max_args: 2,
            help: "override the forwarding state of BFD sessions; normal ends the override",
            run: set_forwarding,
        },
        ProtocolCommand {
            name: "bfd/show",
            arguments: "[interface]",
            min_args: 0,
            max_args: 1,
            help: "show the BFD sessions of all interfaces or one",
            run: show,
        },
    ];

    type Settings = Config;
    type Claim = Claim;

    fn is_control_packet(key: &FlowKey) -> bool {
        let base = &key.base;
        base.tp_dst == UDP_PORT && base.nw_proto == IPPROTO_UDP && base.dl_type == ETH_TYPE_IP
    }

    fn parse(columns: &dyn Columns) -> (Option<Config>, Vec<IgnoredSetting>) {
        let Some(LinkValue::Map(map)) = columns.column(Table::Interface, COLUMN) else {
            return (None, Vec::new());
        };
        let (config, ignored) = Config::parse(&map);
        if !config.enable {
            return (None, Vec::new());
        }
        let placed = |(key, message)| IgnoredSetting {
            table: Table::Interface,
            place: format!("{COLUMN}:{key}"),
            message,
        };
        (Some(config), ignored.into_iter().map(placed).collect())
    }

    fn claim(config: &Config) -> Claim {
        config.claim()
    }

    fn claims(claim: &Claim, flow: &Flow, mask: &mut Mask) -> bool {
        claim.claims(flow, mask)
    }

    fn payload(frame: &[u8]) -> Option<&[u8]> {
        udp_payload(frame)
    }

    fn rx_use(config: &Config) -> RxUse {
        RxUse { by_flows: config.forwarding_if_rx, by_device: config.decay_min_rx_ms > 0 }
    }

    fn configure(
        &mut self,
        port: &LinkPort,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> SessionId {
        self.put(&port.interface, port.mac, config, now_ms, env)
    }
}

impl Engine for Sessions {
    fn find(&self, name: &str) -> Option<SessionId> {
        Sessions::find(self, name)
    }

    fn remove(&mut self, id: SessionId) {
        Sessions::remove(self, id);
    }

    fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Result<(), String> {
        // A packet of a removed session is late, not bad.
        Sessions::input(self, id, received, now_ms, env)
            .unwrap_or(Ok(()))
            .map_err(|refusal| refusal.to_string())
    }

    fn account_rx(&mut self, id: SessionId, packets: u64, now_ms: u64) {
        Sessions::account_rx(self, id, packets, now_ms);
    }

    fn tick(
        &mut self,
        now_ms: u64,
        limit: usize,
        env: &mut dyn Environment,
        out: &mut Vec<(SessionId, Transmission)>,
    ) -> bool {
        let mut sent = Vec::new();
        let more = Sessions::tick(self, now_ms, limit, env, &mut sent);
        out.extend(sent.into_iter().map(|(id, transmission)| (id, transmission.into())));
        more
    }

    fn next_wakeup(&self) -> Option<u64> {
        Sessions::next_wakeup(self)
    }

    fn take_report(&mut self) -> Option<Report> {
        let changed = self.take_changed()?;
        let name = self.get(changed.id).map_or("", |session| session.identity().name.as_str());
        let line = |text| LogLine { module: Self::NAME, level: LineLevel::Info, text };
        Some(Report {
            status_changed: changed.status,
            lines: changed.notices.iter().map(|notice| line(notice.text(name))).collect(),
            lines_lost: changed.notices_lost,
            ..Report::of(changed.id)
        })
    }

    fn link_state(&mut self, id: SessionId, now_ms: u64) -> LinkState {
        LinkState { is_live: self.forwarding(id, now_ms).unwrap_or(true), ..LinkState::UP }
    }

    fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        Sessions::saved(self, id, now_ms)
    }

    fn restore(&mut self, interface: &str, text: &str, then_ms: u64) -> Result<(), String> {
        Sessions::restore(self, interface, text, then_ms)
    }

    fn forget_restored(&mut self) -> Vec<String> {
        Sessions::forget_restored(self)
    }

    fn status(&mut self, id: SessionId, now_ms: u64) -> Status {
        BTreeMap::from([((Table::Interface, STATUS), LinkValue::Map(Sessions::status(self, id, now_ms)))])
    }
}

fn show(sessions: &mut Sessions, args: &[String], now_ms: u64) -> Result<String, String> {
    sessions.show(args.first().map(String::as_str), now_ms).map_err(|e| e.to_string())
}

fn set_forwarding(sessions: &mut Sessions, args: &[String], _now_ms: u64) -> Result<String, String> {
    let (choice, name) = match args {
        [name, choice] => (choice, Some(name.as_str())),
        [choice] => (choice, None),
        _ => return Err("unknown fault string".to_string()),
    };
    sessions.set_forwarding(name, choice).map(str::to_string).map_err(str::to_string)
}
