//! A bridge and its ports on their way to another process.

use super::{Bridge, Info, Port, PortArgs, Role, Seconds, TICK_MS, Topology};
use crate::protocol::SessionId;
use crate::saved::{Former, Object, bound_counts, fields, get, get_fields, put_fields, words};
use crate::spanning_tree::config::RstpBridge;

/// Largest value of a timer, seconds: that of a message's field.
const SECONDS_MAX: u16 = 256;

fields!(Bridge; root, root_times; times: next_tick_ms);
fields!(Seconds, start: Seconds::default(); message_age, max_age, hello, forward_delay; times:);
fields!(PortArgs, start: NO_ARGS; id, cost, is_up, admin_edge, auto_edge, point_to_point, mcheck; times:);
fields!(Port; args, info_is, role, priority, times, designated, designated_times, selected_role, selected, reselect,
    update_info, new_info, agree, agreed, proposed, proposing, disputed, sync, synced, reroot, learn, forward, learning,
    forwarding, topology, rcvd_tc, rcvd_tc_ack, rcvd_tcn, tc_ack, tc_prop, send_rstp, rcvd_rstp, rcvd_stp, is_sensing,
    mcheck, oper_edge, tx_count, hello_when, tc_while, fd_while, rcvd_info_while, rr_while, rb_while, mdelay_while,
    edge_delay_while, told, was_held, uptime_s; times:);
words!(Role:
    Role::Disabled => "disabled",
    Role::Root => "root",
    Role::Designated => "designated",
    Role::Alternate => "alternate",
    Role::Backup => "backup",
);
words!(Info:
    Info::Disabled => "disabled",
    Info::Aged => "aged",
    Info::Mine => "mine",
    Info::Received => "received",
);
words!(Topology:
    Topology::Inactive => "inactive",
    Topology::Learning => "learning",
    Topology::Active => "active",
);

const NO_ARGS: PortArgs = PortArgs {
    id: 0,
    cost: 0,
    is_up: false,
    admin_edge: false,
    auto_edge: false,
    point_to_point: false,
    mcheck: false,
};

impl Seconds {
    fn bound(&mut self) {
        let Seconds { message_age, max_age, hello, forward_delay } = self;
        for seconds in [message_age, max_age, hello, forward_delay] {
            *seconds = (*seconds).min(SECONDS_MAX);
        }
    }
}

impl Port {
    /// Values that arithmetic expects in their range.
    fn bound(&mut self) {
        self.times.bound();
        self.designated_times.bound();
        let limit = 2 * SECONDS_MAX;
        for timer in self.timers() {
            *timer = (*timer).min(3 * limit);
        }
        self.told.bound();
        bound_counts([&mut self.uptime_s]);
    }
}

impl Bridge {
    /// Adds the bridge and a port.
    pub(in crate::spanning_tree) fn save(&self, id: SessionId, object: &mut Object, now_ms: u64) {
        put_fields(object, "bridge", self, now_ms);
        put_fields(object, "settings", &self.settings, now_ms);
        if let Some(port) = self.ports.get(&id) {
            put_fields(object, "port", port, now_ms);
        }
    }

    /// Takes the values of a former bridge, before its ports and settings.
    pub(in crate::spanning_tree) fn restore(&mut self, former: &Former, now_ms: u64) -> Result<(), String> {
        let mut settings: RstpBridge = self.settings;
        get_fields(&former.object, "settings", &mut settings, former.then_ms)?;
        get_fields(&former.object, "bridge", self, former.then_ms)?;
        settings.bound();
        self.settings = settings;
        self.root_times.bound();
        self.next_tick_ms = self.next_tick_ms.min(now_ms + TICK_MS);
        Ok(())
    }

    /// Adds a port of a former bridge.
    pub(in crate::spanning_tree) fn restore_port(
        &mut self,
        id: SessionId,
        former: &Former,
    ) -> Result<(), String> {
        let mut port = Port::new(NO_ARGS, self.settings.is_rapid, self.settings.seconds());
        get_fields(&former.object, "port", &mut port, former.then_ms)?;
        port.bound();
        if get(&former.object, "is_root_port", former.then_ms, false)? {
            self.root_port = Some(id);
        }
        self.ports.insert(id, port);
        Ok(())
    }

    /// All ports are there; without `is_whole` some that the former bridge had are not.
    pub(in crate::spanning_tree) fn go_on(&mut self, is_whole: bool) {
        if !is_whole {
            for port in self.ports.values_mut() {
                (port.selected, port.reselect) = (false, true);
            }
        }
        self.settle(None);
    }
}
