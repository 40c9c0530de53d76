//! [`MemberFacts`]: a member as management systems read it.

use super::aggregator::Aggregator;
use super::frame::state;
use super::member::{Counters, Member};
use flow::MacAddr;

/// Values of a member, by IEEE 802.1AX (`dot3adAggPort*`), as OVS has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberFacts {
    /// System of this end.
    pub actor: MacAddr,
    /// System of the partner; zeros without one.
    pub partner: MacAddr,
    /// Key of the aggregator.
    pub aggregate: u16,
    /// State that the settings request. AGGREGATION is always set, as in OVS.
    pub actor_admin_state: u8,
    /// State of this end.
    pub actor_state: u8,
    /// State of the partner.
    pub partner_state: u8,
    /// Counters of messages.
    pub counters: Counters,
}

impl Aggregator {
    /// Values of one of its members.
    pub(super) fn facts(&self, member: &Member) -> MemberFacts {
        let common = self.common();
        let settings = common.state & (state::ACTIVITY | state::TIMEOUT);
        MemberFacts {
            actor: common.system.id,
            partner: member.partner.system.id,
            aggregate: common.key,
            actor_admin_state: settings | state::AGGREGATION,
            actor_state: member.actor(&common).state,
            partner_state: member.partner.state,
            counters: member.counters,
        }
    }
}
