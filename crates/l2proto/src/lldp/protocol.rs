//! LLDP as a row of the registry of link protocols.

use super::frame::{ETH_TYPE_LLDP, MAPPINGS_MAX, Mapping, TEXT_BYTES_MAX};
use super::session::{Config, MODULE, Session};
use crate::protocol::{
    Columns, Engine, Environment, IgnoredSetting, LinkPort, LinkProtocol, LinkState, LinkValue, Liveness,
    ProtocolCommand, Received, Report, RxUse, SessionId, Status, StatusColumn, Table, Transmission,
};
use crate::saved::{Former, Formers};
use crate::slots::Slots;
use flow::{Flow, FlowKey, Mask};
use packet::headers::ETH_HEADER_BYTES;
use std::collections::BTreeMap;

/// Description of the system without a setting.
const DESCRIPTION: &str = concat!("sluice ", env!("CARGO_PKG_VERSION"));

/// All sessions of a switch.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Slots<Session>,
    formers: Formers,
}

/// Every frame of its EtherType.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim;

const fn command(
    name: &'static str,
    help: &'static str,
    run: fn(&mut Sessions, &[String], u64) -> Result<String, String>,
) -> ProtocolCommand<Sessions> {
    ProtocolCommand { name, arguments: "[bridge]", min_args: 0, max_args: 1, help, run }
}

impl LinkProtocol for Sessions {
    const NAME: &'static str = MODULE;
    const OVS_SLOW_PATH: u32 = 1 << 4;
    const SLOW_PATH_TEXT: &'static str = "Consists of LLDP packets.";
    const PAYLOAD_BYTES_MAX: usize = 1518;
    const STATUS_COLUMNS: &'static [StatusColumn] = &[];
    const LOST_COUNTER: &'static str = "lldp_queue_full";
    const INITIAL_STATE: LinkState = LinkState::UP;
    const LIVENESS: Liveness = Liveness::Required;
    const GATES_TRAFFIC: bool = false;
    const COMMANDS: &'static [ProtocolCommand<Sessions>] = &[
        command("autoattach/show-isid", "show the services that ports request by LLDP", show_services),
        command("autoattach/statistics", "show the counters of LLDP frames of all ports", statistics),
        command("autoattach/status", "show the neighbours with auto-attach of all ports", show_status),
    ];

    type Settings = Config;
    type Claim = Claim;

    fn is_control_packet(key: &FlowKey) -> bool {
        key.base.dl_type == ETH_TYPE_LLDP
    }

    fn parse(columns: &dyn Columns) -> (Option<Config>, Vec<IgnoredSetting>) {
        let (mut ignored, mut is_enabled) = (Vec::new(), false);
        if let Some(LinkValue::Map(map)) = columns.column(Table::Interface, "lldp")
            && let Some(value) = map.get("enable")
        {
            is_enabled = value.eq_ignore_ascii_case("true");
            if !is_enabled && !value.eq_ignore_ascii_case("false") {
                ignored.push(IgnoredSetting {
                    table: Table::Interface,
                    place: "lldp:enable".to_string(),
                    message: format!("lldp:enable={value}: ignored: give true or false"),
                });
            }
        }
        if !is_enabled {
            return (None, ignored);
        }
        let mut ignore = |message: String| {
            ignored.push(IgnoredSetting { table: Table::Bridge, place: "auto_attach".to_string(), message });
        };
        let mut text = |name: &str| match columns.column(Table::AutoAttach, name) {
            Some(LinkValue::Text(text)) => {
                if text.len() > TEXT_BYTES_MAX {
                    ignore(format!("auto_attach: {name}: only the first {TEXT_BYTES_MAX} bytes count"));
                }
                text
            }
            _ => String::new(),
        };
        let (name, description) = (text("system_name"), text("system_description"));
        let is_attached = columns.column(Table::AutoAttach, "system_name").is_some();
        let numbers = match columns.column(Table::AutoAttach, "mappings") {
            Some(LinkValue::Numbers(numbers)) => numbers,
            _ => BTreeMap::new(),
        };
        if numbers.len() > MAPPINGS_MAX {
            ignore(format!(
                "auto_attach: mappings: only the first {MAPPINGS_MAX} count: a frame has no room for more"
            ));
        }
        let mapping = |(isid, vlan): (i64, i64)| {
            Some(Mapping {
                isid: u32::try_from(isid).ok()? & 0xff_ffff,
                vlan: u16::try_from(vlan).ok()? & 0xfff,
            })
        };
        let mappings: Vec<Mapping> = numbers.into_iter().filter_map(mapping).take(MAPPINGS_MAX).collect();
        let mappings = is_attached.then_some(mappings);
        let description = if description.is_empty() { DESCRIPTION.to_string() } else { description };
        (Some(Config { name, description, mappings }), ignored)
    }

    fn claim(_: &Config) -> Claim {
        Claim
    }

    fn claims(_: &Claim, flow: &Flow, mask: &mut Mask) -> bool {
        mask.0.dl_type = u16::MAX;
        flow.dl_type == ETH_TYPE_LLDP
    }

    fn payload(frame: &[u8]) -> Option<&[u8]> {
        Some(frame)
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
        if let Some(id) = self.slots.find(&port.interface) {
            self.slots.with(id, |session| session.configure(port, config.clone(), now_ms));
            return id;
        }
        let former = self.formers.take(&port.interface);
        let continued =
            former.and_then(|former| Session::continued(port, config.clone(), &former, now_ms).ok());
        let session = continued.unwrap_or_else(|| Session::new(port, config.clone(), now_ms));
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
        // The session logs bad frames itself, at a limited rate.
        self.slots.with(id, |session| session.input(received.payload.unwrap_or_default(), now_ms));
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
        for _ in 0..limit {
            let Some(id) = self.slots.due(now_ms) else { return false };
            let frame = self.slots.with(id, |session| {
                session.tick(now_ms);
                session.poll_transmit(now_ms)
            });
            out.extend(frame.flatten().map(|frame| {
                (id, Transmission { frame: frame.into(), header_bytes: ETH_HEADER_BYTES, oam: false })
            }));
        }
        self.slots.due(now_ms).is_some()
    }

    fn next_wakeup(&self) -> Option<u64> {
        self.slots.next_wakeup()
    }

    fn take_report(&mut self) -> Option<Report> {
        let id = self.slots.pop_changed()?;
        let (lines, lines_lost, trunks) = self.slots.with(id, Session::take_changes)?;
        Some(Report { lines, lines_lost, trunks, ..Report::of(id) })
    }

    fn link_state(&mut self, _: SessionId, _: u64) -> LinkState {
        LinkState::UP
    }

    fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        self.slots.get(id).map(|session| session.saved(now_ms))
    }

    fn restore(&mut self, interface: &str, text: &str, then_ms: u64) -> Result<(), String> {
        let former = Former::parse(text, then_ms)?;
        Session::continued(&LinkPort::named(interface), Config::default(), &former, then_ms)?;
        self.formers.put(interface, former)
    }

    fn forget_restored(&mut self) -> Vec<String> {
        self.formers.drain()
    }

    fn status(&mut self, _: SessionId, _: u64) -> Status {
        Status::new()
    }
}

/// The texts of all sessions. As in OVS the bridge does not select any.
fn all(sessions: &mut Sessions, show: impl Fn(&mut Session) -> String) -> Result<String, String> {
    let ids = sessions.slots.ids();
    Ok(ids.into_iter().filter_map(|id| sessions.slots.with(id, &show)).collect())
}

fn show_status(sessions: &mut Sessions, _: &[String], _: u64) -> Result<String, String> {
    all(sessions, |session| session.show_status())
}

fn show_services(sessions: &mut Sessions, _: &[String], now_ms: u64) -> Result<String, String> {
    all(sessions, |session| session.show_services(now_ms))
}

fn statistics(sessions: &mut Sessions, _: &[String], _: u64) -> Result<String, String> {
    all(sessions, |session| session.show_counts())
}
