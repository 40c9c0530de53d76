//! Tests with the kernel's module, if present: each in a separate network namespace, with a datapath whose two
//! ports are the ends of one veth pair, so the other port receives every sent packet.

mod calls;
mod connections;
mod datapaths;
mod flows;
mod meters;
mod others;
mod upcalls;

use dpif::actions::Output;
use netlink::ovs::{
    DpName, DpNew, Execute, FlowMode, FlowPut, RawUpcall, RecvError, Request, UpcallBuffer, VportInfo,
    VportKind, VportNew, features,
};
use netlink::{Ovs, UpcallSocket};
use std::time::Duration;
use testkit::Netns;

use dpif::{DpAction, nlactions};
use flow::nlkey::KeyLimits;
use flow::{DpPort, FlowKey, KeyMask, OfPort, Ufid};

/// Timeout of immediate actions of the kernel.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A datapath with the two ends of a veth pair.
pub(crate) struct Switch<'a> {
    pub(crate) net: &'a Netns,
    pub(crate) ovs: Ovs,
    /// The datapath.
    pub(crate) dp: u32,
    /// Its name.
    pub(crate) name: String,
    /// One end of the pair, without upcalls.
    pub(crate) near: VportInfo,
    /// The other end, with upcalls to `upcalls`.
    pub(crate) far: VportInfo,
    pub(crate) upcalls: UpcallSocket,
}

/// Reports a skip and its reason.
pub(crate) fn skip(what: &str, why: &str) {
    let _false = testkit::skip(what, why);
}

/// Runs a test in a separate namespace, if the kernel has the module.
pub(crate) fn in_namespace(test: impl FnOnce(&Netns, Ovs) + Send) {
    testkit::require_netns!();
    let name = std::thread::current().name().unwrap_or("kernel").to_owned();
    let net = Netns::new("nl").unwrap();
    net.enter(|| match Ovs::open() {
        Err(e) if e.is_no_module() => skip(&name, &e.to_string()),
        Err(e) => panic!("{e}"),
        Ok(ovs) => {
            // Disables the kernel's own packets.
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
            test(&net, ovs);
        }
    })
    .unwrap();
}

/// Runs a test with a datapath that has ports.
pub(crate) fn with_switch(test: impl FnOnce(&Switch<'_>) + Send) {
    in_namespace(|net, ovs| test(&Switch::new(net, ovs)));
}

impl Switch<'_> {
    pub(crate) fn new(net: &Netns, ovs: Ovs) -> Switch<'_> {
        let name = testkit::if_name("dp");
        let new = DpNew {
            name: name.clone(),
            user_features: features::UNALIGNED | features::VPORT_PIDS,
            ..DpNew::default()
        };
        let dp = ovs.dp_new(&new).unwrap().dp_ifindex;
        let (a, b) = (testkit::if_name("va"), testkit::if_name("vb"));
        net.ip(&format!("link add {a} type veth peer name {b}")).unwrap();
        net.up(&a).unwrap();
        net.up(&b).unwrap();
        let upcalls = ovs.upcall_socket(1 << 20).unwrap();
        let port = |name: &str, upcall_pids: Vec<u32>| {
            let (name, kind) = (name.to_owned(), VportKind::Netdev);
            ovs.vport_new(dp, &VportNew { name, kind, number: None, upcall_pids, tunnel: None }).unwrap()
        };
        let (near, far) = (port(&a, Vec::new()), port(&b, vec![upcalls.pid()]));
        Switch { net, ovs, dp, name, near, far, upcalls }
    }

    /// User data of userspace actions, beside their cookie.
    pub(crate) fn context(&self) -> nlactions::ActionContext {
        nlactions::ActionContext {
            upcall_pid: self.upcalls.pid(),
            in_port: OfPort(7),
            bridge: *b"0123456789abcdef",
            explicit_drop: false,
        }
    }

    /// The put that creates a flow.
    pub(crate) fn put(&self, ufid: Ufid, key: &FlowKey, mask: &KeyMask, actions: &[DpAction]) -> FlowPut {
        let put = FlowPut::new(ufid, key, mask, actions, &KeyLimits::LINUX, &self.context()).unwrap();
        FlowPut { mode: FlowMode::Create, ..put }
    }

    /// Executes actions on a frame without an input port.
    pub(crate) fn execute<'p>(&self, frame: &'p [u8], actions: &[DpAction]) -> Request<'p> {
        let nowhere = FlowKey { base: flow::BaseBlock { in_port: u32::MAX, ..zero() }, ..FlowKey::default() };
        Request::Execute(Execute {
            packet: frame,
            key: flow::nlkey::key_to_bytes(&nowhere, &KeyLimits::LINUX),
            actions: nlactions::actions_to_bytes(actions, &self.context()).unwrap(),
            probe: false,
            mru: None,
            hash: None,
            upcall_pid: None,
        })
    }

    /// Sends a frame from the near port: the far one receives it.
    pub(crate) fn send(&self, frame: &[u8]) {
        let out = self.execute(frame, &[DpAction::Output(Output(self.near.number))]);
        self.ovs.operate_one(self.dp, out).unwrap();
    }

    /// Applies `read` to the next upcall.
    pub(crate) fn next_upcall<T>(&self, read: impl Fn(&RawUpcall<'_>) -> T) -> T {
        next_upcall(&self.upcalls, read)
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.ovs.dp_del(DpName::Ifindex(self.dp)) {
            eprintln!("{e}");
        }
    }
}

/// Applies `read` to the next upcall of a socket.
pub(crate) fn next_upcall<T>(socket: &UpcallSocket, read: impl Fn(&RawUpcall<'_>) -> T) -> T {
    let mut buffer = UpcallBuffer::new(1);
    let mut found = None;
    testkit::wait_for(LIMIT, "an upcall", || {
        found = socket.recv(&mut buffer).unwrap().map(|u| read(&u));
        found.is_some()
    })
    .unwrap();
    found.unwrap()
}

/// Whether no upcall is pending.
pub(crate) fn is_quiet(socket: &UpcallSocket) -> bool {
    matches!(socket.recv(&mut UpcallBuffer::new(1)), Ok(None) | Err(RecvError::Malformed(_)))
}

fn zero() -> flow::BaseBlock {
    FlowKey::default().base
}

/// A nonexistent port.
pub(crate) const NO_PORT: DpPort = DpPort(65000);
