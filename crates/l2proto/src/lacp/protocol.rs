//! LACP as a row of the registry of link protocols.

use super::aggregators::Aggregators;
use super::config::{Claim, Config};
use super::frame::{HEADER_BYTES, PDU_BYTES, payload};
use crate::protocol::{
    ColumnKind, Columns, Engine, Environment, IgnoredSetting, LinkPort, LinkProtocol, LinkState, LinkValue,
    Liveness, ProtocolCommand, Received, Report, RxUse, SessionId, Status, StatusColumn, Table, Transmission,
};
use flow::{Flow, FlowKey, Mask};
use packet::headers::ETH_TYPE_LACP;

/// Log module.
const MODULE: &str = "lacp";

/// Column of the status.
const STATUS: &str = "lacp_current";

impl LinkProtocol for Aggregators {
    const NAME: &'static str = MODULE;
    const OVS_SLOW_PATH: u32 = 4;
    const SLOW_PATH_TEXT: &'static str = "Consists of LACP packets.";
    const PAYLOAD_BYTES_MAX: usize = PDU_BYTES;
    const STATUS_COLUMNS: &'static [StatusColumn] = &[StatusColumn {
        table: Table::Interface,
        name: STATUS,
        kind: ColumnKind::Optional,
        is_statistics: false,
    }];
    const LOST_COUNTER: &'static str = "lacp_queue_full";
    const INITIAL_STATE: LinkState = LinkState { is_live: false, ..LinkState::UP };
    const LIVENESS: Liveness = Liveness::Required;
    const GATES_TRAFFIC: bool = false;
    const COMMANDS: &'static [ProtocolCommand<Aggregators>] = &[
        ProtocolCommand {
            name: "lacp/show",
            arguments: "[port]",
            min_args: 0,
            max_args: 1,
            help: "show the LACP state of all ports or one",
            run: show,
        },
        ProtocolCommand {
            name: "lacp/show-stats",
            arguments: "[port]",
            min_args: 0,
            max_args: 1,
            help: "show the LACP counters of all ports or one",
            run: show_counters,
        },
    ];

    type Settings = Config;
    type Claim = Claim;

    fn is_control_packet(key: &FlowKey) -> bool {
        key.base.dl_type == ETH_TYPE_LACP
    }

    fn parse(columns: &dyn Columns) -> (Option<Config>, Vec<IgnoredSetting>) {
        Config::parse(columns)
    }

    fn claim(_: &Config) -> Claim {
        Claim
    }

    fn claims(claim: &Claim, flow: &Flow, mask: &mut Mask) -> bool {
        claim.claims(flow, mask)
    }

    fn payload(frame: &[u8]) -> Option<&[u8]> {
        payload(frame)
    }

    fn rx_use(_: &Config) -> RxUse {
        RxUse { by_flows: false, by_device: false }
    }

    fn configure(
        &mut self,
        port: &LinkPort,
        config: &Config,
        now_ms: u64,
        _: &mut dyn Environment,
    ) -> SessionId {
        self.put(port, config, now_ms)
    }
}

impl Engine for Aggregators {
    fn find(&self, name: &str) -> Option<SessionId> {
        Aggregators::find(self, name)
    }

    fn remove(&mut self, id: SessionId) {
        Aggregators::remove(self, id);
    }

    /// Accepts every packet: bad ones are counted and, at a bounded rate, reported.
    fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        now_ms: u64,
        _: &mut dyn Environment,
    ) -> Result<(), String> {
        Aggregators::input(self, id, received.payload.unwrap_or_default(), now_ms);
        Ok(())
    }

    fn account_rx(&mut self, _: SessionId, _: u64, _: u64) {}

    fn tick(
        &mut self,
        now_ms: u64,
        limit: usize,
        _: &mut dyn Environment,
        out: &mut Vec<(SessionId, Transmission)>,
    ) -> bool {
        Aggregators::tick(self, now_ms, limit, |id, frame| {
            out.push((id, Transmission { frame, header_bytes: HEADER_BYTES, oam: false }));
        })
    }

    fn next_wakeup(&self) -> Option<u64> {
        Aggregators::next_wakeup(self)
    }

    fn take_report(&mut self) -> Option<Report> {
        let changed = self.take_changed()?;
        Some(Report {
            status_changed: changed.effect,
            lines: changed.lines,
            lines_lost: changed.lines_lost,
            ..Report::of(changed.id)
        })
    }

    fn link_state(&mut self, id: SessionId, _: u64) -> LinkState {
        let Some(effect) = self.effect(id) else { return LinkState::UP };
        LinkState { is_live: effect.may_enable, is_negotiated: effect.is_negotiated, ..LinkState::UP }
    }

    fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        Aggregators::saved(self, id, now_ms)
    }

    fn restore(&mut self, interface: &str, text: &str, then_ms: u64) -> Result<(), String> {
        Aggregators::restore(self, interface, text, then_ms)
    }

    fn forget_restored(&mut self) -> Vec<String> {
        Aggregators::forget_restored(self)
    }

    fn status(&mut self, id: SessionId, _: u64) -> Status {
        let current = self.effect(id).map(|effect| LinkValue::Flag(effect.is_current));
        current.map(|current| ((Table::Interface, STATUS), current)).into_iter().collect()
    }
}

fn show(all: &mut Aggregators, args: &[String], _: u64) -> Result<String, String> {
    all.show(args.first().map(String::as_str)).map_err(|e| e.to_string())
}

fn show_counters(all: &mut Aggregators, args: &[String], _: u64) -> Result<String, String> {
    all.show_counters(args.first().map(String::as_str)).map_err(|e| e.to_string())
}
