//! Forwards executed group-mods and meter-mods to the other connections that ask for them (OpenFlow 1.4 §7.4.6).

use super::conn::AsyncKind;
use super::{ConnId, Connmgr};
use ofproto::flow_mod::DoneGroupMod;
use openflow::msg::forward::RequestForward;
use openflow::msg::group::{GroupMod, GroupModCommand};
use openflow::msg::meter::MeterMod;
use openflow::{Format, Message, Version};

/// A request to forward.
pub(super) enum Forward {
    Group(DoneGroupMod),
    Meter(MeterMod, u32),
}

impl Forward {
    /// `OFPRFR_*`.
    fn reason(&self) -> u8 {
        match self {
            Forward::Group(_) => 0,
            Forward::Meter(..) => 1,
        }
    }

    /// The message in a version; `None` if the version lacks the request. Versions without commands for single
    /// buckets get the whole group.
    fn message(&self, version: Version) -> Option<Message> {
        let (message, xid) = match self {
            Forward::Meter(..) if version < Version::V13 => return None,
            Forward::Meter(m, xid) => (Message::MeterMod(m.clone()), *xid),
            Forward::Group(done) => {
                let format = if version == Version::V10 { Format::Nxt } else { Format::Standard };
                let mut request = GroupMod { format, ..done.request.clone() };
                let whole = done.group.as_ref().filter(|_| (Version::V11..Version::V15).contains(&version));
                if let Some(group) = whole {
                    (request.command, request.group) = (GroupModCommand::Modify, group.desc());
                }
                (Message::GroupMod(request), done.xid)
            }
        };
        Some(Message::RequestForward(RequestForward { xid, message: Box::new(message) }))
    }
}

impl Connmgr {
    /// Forwards requests of a connection to the others.
    pub(super) fn forward(&mut self, requests: &[Forward], from: ConnId) {
        for request in requests {
            let asks = |c: &super::Conn| c.receives(AsyncKind::RequestForward, request.reason());
            for conn in self.conns.values_mut().filter(|c| c.id != from && asks(c)) {
                if let Some(message) = request.message(conn.version()) {
                    conn.send_async(&message);
                }
            }
        }
    }
}
