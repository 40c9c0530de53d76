//! Policing of what a device of the kernel's datapath receives: an `ingress` discipline with one filter.

use std::io;

use dpif::qos::Policing;

use super::message::{add_kind, add_options, header, put, rate_spec, ticks};
use super::{Device, text};
use crate::link::wire::{self, Request, c_string};

/// Handle of the `ingress` discipline, and parent of it (`TC_H_INGRESS`).
const INGRESS: u32 = 0xffff_0000;
const INGRESS_PARENT: u32 = 0xffff_fff1;
/// Parent of the filters of packets received.
const INGRESS_FILTERS: u32 = 0xffff_fff2;
/// All types of packets.
const ETH_P_ALL: u16 = 0x0003;
/// Attributes: the actions of filters of kinds `matchall` and `basic`; parts of an action; those of `police`.
const MATCHALL_ACTIONS: u16 = 2;
const BASIC_ACTIONS: u16 = 3;
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const POLICE_TBF: u16 = 1;
const POLICE_RATE: u16 = 2;
const POLICE_RESULT: u16 = 5;
const POLICE_RATE64: u16 = 8;
const POLICE_PACKET_RATE: u16 = 10;
const POLICE_PACKET_BURST: u16 = 11;
/// Results: go on with the next filter, drop, go on with the next action.
const UNSPECIFIED: u32 = u32::MAX;
const DROP: u32 = 2;
const PIPE: u32 = 3;
/// The largest packet that is policed as a whole.
const POLICE_MTU: u32 = u16::MAX as u32;

/// Limits what a device receives; removes earlier limits.
///
/// # Errors
/// The kernel refuses, with the reason.
pub fn police(ifindex: u32, limits: Policing) -> Result<(), String> {
    let socket = wire::open_asking().map_err(|e| text(&e))?;
    let device = Device { socket, ifindex };
    let remove = device.request(libc::RTM_DELQDISC, 0, INGRESS, INGRESS_PARENT);
    match device.call(remove) {
        Err(e) if !is_absent(&e) => return Err(format!("removing policing failed: {}", text(&e))),
        _ => {}
    }
    if limits.is_none() {
        return Ok(());
    }
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut request = device.request(libc::RTM_NEWQDISC, flags, INGRESS, INGRESS_PARENT);
    add_kind(&mut request, "ingress");
    add_options(&mut request, &[]);
    device.call(request).map_err(|e| format!("adding policing qdisc failed: {}", text(&e)))?;
    let limits = limits.effective();
    let added = match device.call(filter(ifindex, "matchall", 1, MATCHALL_ACTIONS, &limits)) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            device.call(filter(ifindex, "basic", 49, BASIC_ACTIONS, &limits))
        }
        other => other,
    };
    added.map(drop).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT) => "the kernel lacks the action police, or a filter for it".to_string(),
        _ => format!("adding policing action failed: {}", text(&e)),
    })
}

/// Whether there was nothing to remove.
fn is_absent(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL))
}

/// The request for a filter of all packets with the actions; the priorities are those of stock switches.
fn filter(ifindex: u32, kind: &str, priority: u32, actions_kind: u16, limits: &Policing) -> Request {
    let info = priority << 16 | u32::from(ETH_P_ALL.to_be());
    let header = header(ifindex, 1, INGRESS_FILTERS, info);
    let mut request = Request::change(libc::RTM_NEWTFILTER, libc::NLM_F_CREATE, &header);
    add_kind(&mut request, kind);
    let mut actions = Vec::new();
    // The kernel takes no action with both kinds of limits.
    let both = limits.kbps > 0 && limits.kpps > 0;
    if limits.kbps > 0 {
        let rate = limits.kbps.saturating_mul(1000) / 8;
        // As in stock switches: 1024 bits here, and 1000 in the rate.
        let burst = limits.burst_kbits.saturating_mul(1024) / 8;
        let mut police = tbf(rate, ticks(burst, rate));
        // The kernel asks for a table of times, and does not use it.
        put(&mut police, POLICE_RATE, &[0; 1024]);
        if rate > u64::from(u32::MAX) {
            put(&mut police, POLICE_RATE64, &rate.to_ne_bytes());
        }
        put_action(&mut actions, 1, police, if both { PIPE } else { UNSPECIFIED });
    }
    if limits.kpps > 0 {
        let (packets, burst) = (limits.kpps.saturating_mul(1000), limits.burst_kpackets.saturating_mul(1000));
        let mut police = tbf(0, 0);
        put(&mut police, POLICE_PACKET_RATE, &packets.to_ne_bytes());
        put(&mut police, POLICE_PACKET_BURST, &u64::from(ticks(burst, packets)).to_ne_bytes());
        put_action(&mut actions, 1 + u16::from(both), police, UNSPECIFIED);
    }
    let mut options = Vec::new();
    put(&mut options, actions_kind, &actions);
    add_options(&mut request, &options);
    request
}

/// The attribute with `struct tc_police`, for a rate of bytes and the time of a burst.
fn tbf(rate: u64, burst: u32) -> Vec<u8> {
    // Index, action, limit, burst, largest packet; rate, peak rate, counts, capabilities.
    let words = [0, DROP, 0, burst, POLICE_MTU];
    let mut tbf: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_ne_bytes()).collect();
    tbf.extend(rate_spec(rate, 0));
    tbf.resize(tbf.len() + 12 + 12, 0);
    let mut police = Vec::new();
    put(&mut police, POLICE_TBF, &tbf);
    police
}

/// Appends an action of that place, with the result of a packet that passes.
fn put_action(actions: &mut Vec<u8>, place: u16, mut police: Vec<u8>, result: u32) {
    put(&mut police, POLICE_RESULT, &result.to_ne_bytes());
    let mut action = Vec::new();
    put(&mut action, ACTION_KIND, &c_string("police"));
    put(&mut action, ACTION_OPTIONS, &police);
    put(actions, place, &action);
}
