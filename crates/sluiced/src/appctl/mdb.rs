//! Commands about multicast groups.

use super::datapath::of_bridge;
use super::{Json, Optional, Reply, Rows, TypedReply, Word, command};
use crate::control_plane::ControlPlane;
use flow::OfPort;
use ofproto::mcast::{McastTable, Member};
use ofproto::ports::PortTable;
use serde_json::{Value, json};
use sync::lock;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "mdb/flush",
        Optional(Word("bridge")),
        "remove the learned multicast groups of all bridges or one",
        flush,
    ),
    &command("mdb/show", Word("bridge"), "list the learned multicast groups of a bridge", show),
];

const DISABLED: &str = "multicast snooping is disabled";

/// A member of a group, or the port of a router.
struct Entry {
    /// The first port of its bundle, if there is one.
    port: Option<OfPort>,
    vlan: u16,
    /// Protocol of the group's last report.
    protocol: String,
    /// Address of the group; `None` for a router.
    group: Option<String>,
    age_s: u64,
}

impl Entry {
    fn new(ports: &PortTable, now_ms: u64, vlan: u16, member: &Member) -> Entry {
        Entry {
            port: ports.bundles.get(&member.bundle).and_then(|bundle| bundle.members.first()).copied(),
            vlan,
            protocol: "UNKNOWN".to_string(),
            group: None,
            age_s: now_ms.saturating_sub(member.seen_ms) / 1000,
        }
    }

    fn port(&self) -> String {
        match self.port {
            Some(OfPort::LOCAL) => "LOCAL".to_string(),
            Some(port) => port.to_string(),
            None => "?".to_string(),
        }
    }

    fn line(&self) -> String {
        let (port, vlan, protocol, age) = (self.port(), self.vlan, &self.protocol, self.age_s);
        match &self.group {
            Some(group) => format!("{port:>5}  {vlan:>4}  {protocol:<8}  {group}         {age:>3}\n"),
            None => format!("{port:>5}  {vlan:>4}  {protocol:<8}  querier             {age:>3}\n"),
        }
    }

    fn json(&self) -> Value {
        let port = match self.port {
            Some(port) if port != OfPort::LOCAL => Value::from(port.0),
            _ => self.port().into(),
        };
        let group = self.group.as_deref().unwrap_or("querier");
        json!({ "port": port, "vlan": self.vlan, "protocol": self.protocol, "group": group, "age": self.age_s })
    }
}

fn entries(groups: &McastTable, ports: &PortTable, now_ms: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    for ((vlan, group), protocol, members) in groups.groups() {
        entries.extend(members.iter().map(|member| Entry {
            protocol: protocol.to_string(),
            group: Some(group.to_canonical().to_string()),
            ..Entry::new(ports, now_ms, vlan, member)
        }));
    }
    entries.extend(groups.routers().map(|(vlan, router)| Entry::new(ports, now_ms, *vlan, router)));
    entries
}

/// Members and routers of a bridge.
struct Groups(Vec<Entry>);

impl TypedReply for Groups {
    fn text(&self) -> String {
        let lines: String = self.0.iter().map(Entry::line).collect();
        format!(" port  VLAN  protocol  GROUP                Age\n{lines}")
    }

    fn json(&self) -> Json<'_> {
        Json::Whole(self.0.iter().map(Entry::json).collect())
    }
}

fn show(plane: &mut ControlPlane, bridge: &str) -> Reply {
    let now_ms = sys::clock::monotonic_ms();
    let found = of_bridge(&plane.switch, bridge).and_then(|(_, b)| {
        let groups = b.mcast.as_ref().ok_or_else(|| DISABLED.to_string())?;
        Ok(Reply::Value(Box::new(Groups(entries(&lock(groups), &b.ports, now_ms)))))
    });
    Reply::or_error(found)
}

fn flush(plane: &mut ControlPlane, bridge: Option<&str>) -> Reply {
    let flush = || {
        for (instance, b) in super::fdb::chosen(&plane.switch, bridge)? {
            if b.mcast.is_none() && bridge.is_some() {
                return Err(DISABLED.to_string());
            }
            instance.backer.flush_mcast(&b);
        }
        Ok("table successfully flushed\n".to_string())
    };
    Reply::from(flush())
}
