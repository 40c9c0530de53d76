//! The state of a session on its way to another process. Services that the port carries already change no VLAN again.

use super::{Config, Counts, NEIGHBOURS_MAX, Neighbour, Service, Session};
use crate::lines::Lines;
use crate::lldp::frame::{Assignment, Element, MAPPINGS_MAX, Mapping, Remote};
use crate::protocol::LinkPort;
use crate::saved::{Former, Object, bound_counts, fields, get, get_fields, line, put, put_fields};
use flow::MacAddr;

fields!(Session; services, neighbours, counts; times: next_tx_ms);
fields!(Service, start: Service { mapping: NO_MAPPING, status: 0 }; mapping, status; times:);
fields!(Mapping, start: NO_MAPPING; isid, vlan; times:);
fields!(Neighbour, start: Neighbour { remote: Remote::default(), expires_ms: 0 }; remote; times: expires_ms);
fields!(Remote, start: Remote::default(); chassis, port, ttl_s, description, element, assignments, unknown, unknown_org; times:);
fields!(Element, start: Element { kind: 0, has_tags: false, mode: 0, vlan: 0, mac: MacAddr([0; 6]), connection: 0,
    reserved: 0, reserved_bytes: [0; 2] }; kind, has_tags, mode, vlan, mac, connection, reserved, reserved_bytes; times:);
fields!(Assignment, start: Assignment { mapping: NO_MAPPING, status: 0 }; mapping, status; times:);
fields!(Counts, start: Counts::default(); sent, received, discarded, unrecognized, aged_out, inserted, deleted, dropped;
    times:);
// Those whose change delays the next frame.
fields!(Config; name, description; times:);

const NO_MAPPING: Mapping = Mapping { isid: 0, vlan: 0 };

impl Session {
    pub(in crate::lldp) fn saved(&self, now_ms: u64) -> String {
        let mut object = Object::new();
        put_fields(&mut object, "session", self, now_ms);
        put_fields(&mut object, "settings", &self.config, now_ms);
        put_fields(&mut object, "lines", &self.lines, now_ms);
        put(&mut object, "mac", &self.mac, now_ms);
        line(object)
    }

    /// A session that goes on from a former one. Settings that have changed since take effect as on a running one.
    pub(in crate::lldp) fn continued(
        port: &LinkPort,
        config: Config,
        former: &Former,
        now_ms: u64,
    ) -> Result<Session, String> {
        let mut old = Config { mappings: None, ..config.clone() };
        get_fields(&former.object, "settings", &mut old, former.then_ms)?;
        let mac = get(&former.object, "mac", former.then_ms, port.mac)?;
        let mut session = Session::new(&LinkPort { mac, ..port.clone() }, old, now_ms);
        get_fields(&former.object, "session", &mut session, former.then_ms)?;
        session.lines = Lines::default();
        get_fields(&former.object, "lines", &mut session.lines, former.then_ms)?;
        session.lines.bound();
        let Counts { sent, received, discarded, unrecognized, aged_out, inserted, deleted, dropped } =
            &mut session.counts;
        bound_counts([sent, received, discarded, unrecognized, aged_out, inserted, deleted, dropped]);
        session.services.truncate(MAPPINGS_MAX);
        session.services.retain(|service| service.mapping.isid <= 0xff_ffff && service.mapping.vlan <= 0xfff);
        session.neighbours.truncate(NEIGHBOURS_MAX);
        if session.next_tx_ms == u64::MAX {
            session.next_tx_ms = 0;
        }
        session.set_expiry();
        session.go_on(port, config, now_ms);
        Ok(session)
    }
}
