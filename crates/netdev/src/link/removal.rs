//! Removal of many devices by one request.
//!
//! The kernel waits for an RCU grace period, some 20 ms, for each request that removes a device. A request for a group
//! (`IFLA_GROUP`) removes all its devices and waits once.

use std::collections::BTreeSet;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::c_int;

use super::wire::{self, Request, attribute, field, messages};
use crate::raw::context;

/// Devices of one request: below the bytes that the kernel takes and answers at once.
pub const TOGETHER: usize = 256;

/// Number of the first message; the last is the removal.
const FIRST: u32 = 1;

/// Removes at most [`TOGETHER`] virtual devices of the calling thread's namespace. Those that the kernel does not know are
/// returned, by their place in `ifindexes`.
///
/// # Errors
/// The group cannot be removed: all devices are there, possibly in a group of no other device.
pub(crate) fn delete_together(ifindexes: &[u32]) -> io::Result<Vec<usize>> {
    let fd = wire::open_asking()?;
    let group = unused_group(&groups(&fd)?, seed());
    wire::send(&fd, &requests(ifindexes, group))?;
    let (last, mut unknown) = (FIRST + ifindexes.len() as u32, Vec::new());
    let mut buf = vec![0; wire::ANSWER_BYTES];
    loop {
        let got = wire::receive(&fd, &mut buf, 0)?;
        for answer in messages(&buf[..got]).filter(|m| c_int::from(m.kind) == libc::NLMSG_ERROR) {
            let code = i32::from_ne_bytes(field(&answer.body, 0).unwrap_or([0xff; 4]));
            match answer.seq {
                seq if seq == last && code == 0 => return Ok(unknown),
                // None of the devices is known, so no device has the group.
                seq if seq == last && unknown.len() == ifindexes.len() => return Ok(unknown),
                seq if seq == last => {
                    let failed = context(format!("device group {group}"));
                    return Err(failed(io::Error::from_raw_os_error(-code)));
                }
                seq if code != 0 => unknown.extend(seq.checked_sub(FIRST).map(|at| at as usize)),
                _ => {}
            }
        }
    }
}

/// Moves each device to the group, then removes the group: messages of one datagram, numbered from [`FIRST`]. Only the last
/// is acknowledged; errors of the others are answered.
fn requests(ifindexes: &[u32], group: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (ifindex, seq) in ifindexes.iter().zip(FIRST..) {
        let mut request = Request::change_link(*ifindex, 0, 0).unacknowledged().numbered(seq);
        request.add(attribute::GROUP, &group.to_ne_bytes());
        bytes.extend(request.finish());
    }
    let mut request = Request::delete_link(0).numbered(FIRST + ifindexes.len() as u32);
    request.add(attribute::GROUP, &group.to_ne_bytes());
    bytes.extend(request.finish());
    bytes
}

/// The groups of all devices.
fn groups(fd: &std::os::fd::OwnedFd) -> io::Result<BTreeSet<u32>> {
    let links = Request::dump_links().call_on(fd).map_err(context("cannot list the links"))?;
    Ok(links
        .iter()
        .filter_map(|link| wire::link_attribute(link, attribute::GROUP))
        .filter_map(|group| field(group, 0))
        .map(u32::from_ne_bytes)
        .collect())
}

/// A number that differs from those of other programs.
fn seed() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.subsec_nanos())
        ^ std::process::id().rotate_left(16)
}

/// A group without devices; beyond those that administrators name.
fn unused_group(used: &BTreeSet<u32>, seed: u32) -> u32 {
    const LEAST: u32 = 1 << 30;
    (0..=u32::MAX)
        .map(|n| seed.wrapping_add(n) % LEAST + LEAST)
        .find(|group| !used.contains(group))
        .unwrap_or(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_devices_is_never_taken() {
        let first = unused_group(&BTreeSet::new(), 5);
        assert!(first >= 1 << 30);
        let next = unused_group(&BTreeSet::from([first, first + 1, 0]), 5);
        assert_eq!(next, first + 2);
        // The number behind the last is the first.
        let last = u32::MAX >> 1;
        assert_eq!(unused_group(&BTreeSet::from([last]), (1 << 30) - 1), 1 << 30);
    }

    #[test]
    fn messages_are_numbered_and_the_last_is_acknowledged() {
        let bytes = requests(&[7, 9], 1 << 30);
        let all: Vec<_> = messages(&bytes).collect();
        let ack = libc::NLM_F_ACK as u16;
        let shown = |m: &wire::Message| {
            (m.kind, m.seq, m.flags & ack != 0, u32::from_ne_bytes(field(&m.body, 4).unwrap()))
        };
        assert_eq!(
            all.iter().map(shown).collect::<Vec<_>>(),
            [
                (libc::RTM_NEWLINK, 1, false, 7),
                (libc::RTM_NEWLINK, 2, false, 9),
                (libc::RTM_DELLINK, 3, true, 0)
            ]
        );
        for m in &all {
            assert_eq!(
                wire::attributes(&m.body[16..]).collect::<Vec<_>>(),
                [(attribute::GROUP, &(1u32 << 30).to_ne_bytes()[..])]
            );
        }
    }
}
