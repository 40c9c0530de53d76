//! The state of members on its way to another process. Each has the values of its port, so any of them may be the first.

use super::aggregator::Aggregator;
use super::config::PortConfig;
use super::frame::{Information, System};
use super::member::{Counters, Link, Member, Status};
use crate::protocol::SessionId;
use crate::saved::{Former, Object, fields, get_fields, line, put_fields, words};
use flow::MacAddr;

fields!(Member; mac, link, has_carrier, status, is_attached, partner, told, counters, order; times: tx_ms, rx_ms);
fields!(Link, start: Link::default(); port_id, port_priority, key; times:);
fields!(Information, start: Information::default(); system, key, port_priority, port_id, state; times:);
fields!(System, start: System::default(); priority, id; times:);
fields!(Counters, start: Counters::default(); sent, received, bad, markers, expired, defaulted, carrier_changed; times:);
fields!(Common; name, members, is_key_member, is_negotiated, is_stale, falls_back, system; times:);
words!(Status: Status::Current => "current", Status::Expired => "expired", Status::Defaulted => "defaulted");

/// Values of a port, as each member tells them.
#[derive(Clone, Debug)]
pub(super) struct Common {
    /// Name of the port.
    pub(super) name: String,
    /// Number of its members.
    pub(super) members: u32,
    /// Whether all have the key of this one.
    pub(super) is_key_member: bool,
    pub(super) is_negotiated: bool,
    pub(super) is_stale: bool,
    falls_back: bool,
    system: System,
}

impl Common {
    fn new(name: &str, config: &PortConfig) -> Common {
        let PortConfig { is_active: _, is_fast: _, falls_back, system } = *config;
        Common {
            name: name.to_owned(),
            members: 0,
            is_key_member: false,
            is_negotiated: false,
            is_stale: true,
            falls_back,
            system,
        }
    }

    /// Whether the choice of members stands with these settings.
    pub(super) fn stands(&self, config: &PortConfig) -> bool {
        !self.is_stale && (self.falls_back, self.system) == (config.falls_back, config.system)
    }
}

/// A former member and its port's values.
pub(super) struct FormerMember {
    pub(super) member: Member,
    pub(super) common: Common,
}

impl Aggregator {
    /// The state of a member.
    pub(super) fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        let member = self.member(id)?;
        let common = Common {
            members: self.members.len() as u32,
            is_key_member: self.key_member == Some(id),
            is_negotiated: self.is_negotiated,
            is_stale: self.is_stale(),
            ..Common::new(&self.name, &self.config)
        };
        let mut object = Object::new();
        put_fields(&mut object, "session", member, now_ms);
        put_fields(&mut object, "port", &common, now_ms);
        put_fields(&mut object, "triggered", &member.triggered, now_ms);
        Some(line(object))
    }
}

impl FormerMember {
    /// Reads the state of a member.
    pub(super) fn parse(
        former: &Former,
        (id, name): (SessionId, &str),
        mac: MacAddr,
        config: &PortConfig,
    ) -> Result<FormerMember, String> {
        let then_ms = former.then_ms;
        let mut member = Member { mac, ..Member::new(id, name) };
        get_fields(&former.object, "session", &mut member, then_ms)?;
        get_fields(&former.object, "triggered", &mut member.triggered, then_ms)?;
        member.triggered.bound();
        if member.tx_ms == u64::MAX {
            member.tx_ms = 0;
        }
        let mut common = Common::new("", config);
        get_fields(&former.object, "port", &mut common, then_ms)?;
        Ok(FormerMember { member, common })
    }
}
