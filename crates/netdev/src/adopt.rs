//! [`adopt`]: opens a port by receive queues that another process lends ([`RxQueue::lend`](crate::RxQueue::lend)).
//!
//! Both processes hold the descriptors of a queue for a time, and one of them receives. Frames that wait stay in the
//! socket, the ring or the tap meanwhile, so none is lost or read twice if the second process goes on at the place where the
//! first one stopped ([`RxQueue::place`](crate::RxQueue::place)).

use std::io;

use dpif::{PortOptions, PortSpec};

use crate::lending::{LentKind, LentQueue};
use crate::open::OpenedPort;
use crate::system::{MAX_RX_QUEUES, SystemOptions};
use crate::{system, tap};

/// Options with those of the port itself.
fn options_of(spec: &PortSpec, system: &SystemOptions) -> SystemOptions {
    match &spec.options {
        PortOptions::System(port) => SystemOptions { merge_udp: port.merge_udp, ..system.clone() },
        _ => system.clone(),
    }
}

/// Opens a port whose receive queues another process lends, in the order of its queues. Frames are received from the place
/// set by [`RxQueue::go_on_at`](crate::RxQueue::go_on_at).
///
/// # Errors
/// The descriptors are no queues of that device, or not all of one kind; nothing was changed.
pub fn adopt(spec: &PortSpec, system: &SystemOptions, queues: Vec<LentQueue>) -> io::Result<OpenedPort> {
    let name = &spec.name;
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("device {name}: {what}"));
    if queues.len() > MAX_RX_QUEUES {
        return Err(bad("too many lent queues"));
    }
    if queues.iter().any(|queue| queue.fds.len() != queue.kind.descriptors()) {
        return Err(bad("a lent queue lacks a descriptor"));
    }
    let taps = queues.iter().filter(|queue| queue.kind == LentKind::Tap).count();
    let device = match taps {
        0 if queues.is_empty() => return Err(bad("no lent queues")),
        0 => system::adopt(name, &options_of(spec, system), queues)?,
        n if n == queues.len() => tap::adopt(name, queues.into_iter().flat_map(|queue| queue.fds).collect())?,
        _ => return Err(bad("lent queues of several kinds")),
    };
    Ok(OpenedPort::of_kernel(device))
}
