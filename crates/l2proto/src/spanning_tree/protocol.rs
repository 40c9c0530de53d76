//! Both protocols as a row of the registry of link protocols: OVS has one word and one bit of the slow path for them.

use super::bpdu::{self, ADDRESS, PAYLOAD_BYTES_MAX};
use super::config::{self, Settings};
use super::sessions::Sessions;
use super::{PORT_RSTP_STATISTICS, PORT_STATISTICS, RSTP_STATUS, STATUS, initial_state};
use crate::protocol::{
    ColumnKind, Columns, Engine, Environment, IgnoredSetting, LinkPort, LinkProtocol, LinkState, Liveness,
    ProtocolCommand, Received, Report, RxUse, SessionId, Status, StatusColumn, Table, Transmission,
};
use flow::{Flow, FlowKey, Mask};
use packet::headers::FLOW_DL_TYPE_NONE;

/// Log module.
const MODULE: &str = "stp";

/// Every BPDU: its address in a frame with a length in place of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim;

const fn column(table: Table, name: &'static str, is_statistics: bool) -> StatusColumn {
    StatusColumn { table, name, kind: ColumnKind::Map, is_statistics }
}

const fn command(
    name: &'static str,
    help: &'static str,
    run: fn(&mut Sessions, &[String], u64) -> Result<String, String>,
) -> ProtocolCommand<Sessions> {
    ProtocolCommand { name, arguments: "[bridge]", min_args: 0, max_args: 1, help, run }
}

/// Errors of commands for a bridge without such a tree.
const NO_STP: &str = "no such stp object";
const NO_RSTP: &str = "No such RSTP object";

fn show(all: &mut Sessions, args: &[String], is_rapid: bool, now_ms: u64) -> Result<String, String> {
    let none = if is_rapid { NO_RSTP } else { NO_STP };
    all.show(args.first().map(String::as_str), is_rapid, now_ms).ok_or_else(|| none.to_string())
}

fn change(all: &mut Sessions, args: &[String], is_rapid: bool, now_ms: u64) -> Result<String, String> {
    let none = if is_rapid { NO_RSTP } else { NO_STP };
    let found = all.change_topology(args.first().map(String::as_str), is_rapid, now_ms);
    if found || args.is_empty() { Ok("OK".to_string()) } else { Err(none.to_string()) }
}

impl LinkProtocol for Sessions {
    const NAME: &'static str = MODULE;
    const OVS_SLOW_PATH: u32 = 8;
    const SLOW_PATH_TEXT: &'static str = "Consists of STP packets.";
    const PAYLOAD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
    const STATUS_COLUMNS: &'static [StatusColumn] = &[
        column(Table::Bridge, STATUS, false),
        column(Table::Bridge, RSTP_STATUS, false),
        column(Table::Port, STATUS, false),
        column(Table::Port, RSTP_STATUS, false),
        column(Table::Port, PORT_STATISTICS, true),
        column(Table::Port, PORT_RSTP_STATISTICS, true),
    ];
    const LOST_COUNTER: &'static str = "stp_queue_full";
    const INITIAL_STATE: LinkState = super::STOPPED;
    const LIVENESS: Liveness = Liveness::Required;
    const GATES_TRAFFIC: bool = true;
    const COMMANDS: &'static [ProtocolCommand<Sessions>] = &[
        command("rstp/show", "show the RSTP state of all bridges or one", |all, args, now_ms| {
            show(all, args, true, now_ms)
        }),
        command("rstp/tcn", "force an RSTP topology change", |all, args, now_ms| {
            change(all, args, true, now_ms)
        }),
        command("stp/show", "show the STP state of all bridges or one", |all, args, now_ms| {
            show(all, args, false, now_ms)
        }),
        command("stp/tcn", "force an STP topology change", |all, args, now_ms| {
            change(all, args, false, now_ms)
        }),
    ];

    type Settings = Settings;
    type Claim = Claim;

    fn is_control_packet(key: &FlowKey) -> bool {
        key.base.dl_type == FLOW_DL_TYPE_NONE && key.base.dl_dst == ADDRESS.0
    }

    fn parse(columns: &dyn Columns) -> (Option<Settings>, Vec<IgnoredSetting>) {
        config::parse(columns)
    }

    fn initial_state(settings: &Settings) -> LinkState {
        initial_state(settings)
    }

    fn claim(_: &Settings) -> Claim {
        Claim
    }

    fn claims(_: &Claim, flow: &Flow, mask: &mut Mask) -> bool {
        mask.0.dl_type = u16::MAX;
        mask.0.dl_dst = [0xff; 6];
        flow.dl_type == FLOW_DL_TYPE_NONE && flow.dl_dst() == ADDRESS
    }

    fn payload(frame: &[u8]) -> Option<&[u8]> {
        bpdu::payload(frame)
    }

    fn rx_use(_: &Settings) -> RxUse {
        RxUse { by_flows: false, by_device: false }
    }

    fn configure(
        &mut self,
        port: &LinkPort,
        settings: &Settings,
        now_ms: u64,
        _: &mut dyn Environment,
    ) -> SessionId {
        self.put(port, settings, now_ms)
    }
}

impl Engine for Sessions {
    fn find(&self, name: &str) -> Option<SessionId> {
        self.find_session(name)
    }

    fn remove(&mut self, id: SessionId) {
        self.forget(id);
    }

    /// A bad BPDU counts in the statistics of its port.
    fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        now_ms: u64,
        _: &mut dyn Environment,
    ) -> Result<(), String> {
        self.receive(id, received.payload, now_ms);
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
        self.serve(now_ms, limit, out)
    }

    fn next_wakeup(&self) -> Option<u64> {
        self.wakes_at()
    }

    fn take_report(&mut self) -> Option<Report> {
        self.next_report()
    }

    fn link_state(&mut self, id: SessionId, now_ms: u64) -> LinkState {
        self.refresh(now_ms);
        self.state(id)
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
        self.refresh(now_ms);
        self.status_of(id, now_ms)
    }
}
