//! Probes the capabilities of the kernel.
//!
//! Puts a trial flow that matches no packet, and deletes it; the kernel rejects unsupported keys and actions.

use super::{Capabilities, Mode};
use dpif::actions::{CtClear, Foreign};
use dpif::nlactions::ActionContext;
use dpif::text::{NumbersOnly, parse_actions, parse_key_mask};
use dpif::{
    CtAction, CtCapabilities, CtCommit, CtName, CtNat, DpAction, DpifError, NatAddresses, NatRange,
    QueuePriority, TimeoutNames,
};
use flow::nlkey::KeyLimits;
use flow::{OfPort, Ufid};
use netlink::Ovs;
use netlink::ovs::{DpName, DpSet, FlowDel, FlowMode, FlowName, FlowPut, Request, features};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

/// Maximum nesting of samples tried.
const NESTING_MAX: u8 = 10;
/// Outputs of a flow that the kernel takes: 32 KiB. It refuses longer lists, also for one packet.
const FLOW_ACTIONS_MAX: usize = 4096;
/// Maximum MPLS labels tried: those of our keys.
const LABELS_MAX: u8 = 3;

/// Result of the probes.
pub(super) struct Found {
    pub(super) can: Capabilities,
    pub(super) limits: KeyLimits,
}

/// Version of the kernel datapath: that of the kernel, which includes it.
pub(crate) fn version() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or(String::new(), |text| text.trim().to_string())
}

/// Major and minor number of a kernel version; zeros if malformed.
fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Selects the dispatch mode and sets it in the kernel.
///
/// # Errors
/// The kernel does not support the wanted mode.
pub(super) fn dispatch(ovs: &Ovs, ifindex: u32, wanted: Option<Mode>) -> Result<Mode, DpifError> {
    let set = |bits| {
        let change = DpSet { user_features: Some(bits), ..DpSet::default() };
        ovs.dp_set(DpName::Ifindex(ifindex), &change).map(|info| info.user_features & bits == bits)
    };
    if wanted != Some(Mode::PerPort) {
        // Older kernels accept any bit and ignore it.
        let known = major_minor(&version()) >= (5, 15);
        match set(features::UNALIGNED | features::DISPATCH_UPCALL_PER_CPU) {
            Ok(true) if known => return Ok(Mode::PerCpu),
            _ if wanted == Some(Mode::PerCpu) => {
                let why = "this kernel cannot hand up packets per CPU (Linux 5.15 can)";
                return Err(DpifError::Unsupported(why.to_string()));
            }
            _ => {}
        }
    }
    set(features::UNALIGNED).map_err(|e| DpifError::Device(e.to_string()))?;
    Ok(Mode::PerPort)
}

/// A key that matches no packet: a local experimental EtherType (IEEE 802).
const TRIAL_KEY: &str = "in_port(0),eth_type(0x88b5)";
/// Such a key for IPv4, which connection tracking requires: an experimental protocol (RFC 3692).
const TRIAL_KEY_IPV4: &str = "in_port(0),eth_type(0x0800),ipv4(proto=253,frag=no)";
/// Such a key for IPv6.
const TRIAL_KEY_IPV6: &str = "in_port(0),eth_type(0x86dd),ipv6(proto=253,frag=no)";
/// `OVS_ACTION_ATTR_ADD_MPLS`, whose trial entry has a form that text lacks.
const ADD_MPLS: u16 = 22;

/// The kernel datapath under test.
struct Trial<'a> {
    ovs: &'a Ovs,
    ifindex: u32,
}

impl Trial<'_> {
    /// Whether the kernel accepts a drop flow with that key.
    fn key(&self, key: &str) -> bool {
        self.takes(key, &[])
    }

    /// Whether it accepts these actions.
    fn actions(&self, text: &str) -> bool {
        let actions = parse_actions(text, &NumbersOnly).unwrap_or_default();
        !actions.is_empty() && self.takes(TRIAL_KEY, &actions)
    }

    fn takes(&self, key: &str, actions: &[DpAction]) -> bool {
        let Ok((key, mask)) = parse_key_mask(key, &NumbersOnly) else { return false };
        let context = ActionContext {
            upcall_pid: u32::MAX,
            in_port: OfPort::NONE,
            bridge: [0; 16],
            explicit_drop: true,
        };
        // A ufid of no flow: those of flows begin with random numbers.
        let ufid = Ufid(1);
        let Ok(put) = FlowPut::new(ufid, &key, &mask, actions, &KeyLimits::LINUX, &context) else {
            return false;
        };
        let put = FlowPut { mode: FlowMode::Create, probe: true, stats: false, ..put };
        let del = Request::FlowDel(FlowDel { name: FlowName::Ufid(ufid), stats: false });
        // One left by a process that died here would be in the way.
        let reported = self.ovs.operate(self.ifindex, &[del.clone(), Request::FlowPut(put), del]);
        // If a flow of a former process matches the key, that is the only error.
        reported.get(1).is_some_and(|result| result.as_ref().err().is_none_or(netlink::Error::is_exists))
    }

    /// The kernel's support for connection tracking.
    fn ct(&self) -> CtCapabilities {
        let field = |text: &str| self.key(&format!("{text},{TRIAL_KEY}"));
        let tuple = |text: &str, nobody: &str| self.key(&format!("ct_state(+trk),{text},{nobody}"));
        let commit = CtAction { commit: CtCommit::Yes, ..CtAction::default() };
        let action = |ct: CtAction| self.takes(TRIAL_KEY_IPV4, &[DpAction::Ct(Box::new(ct))]);
        let zero = NatRange {
            is_dst: false,
            addresses: Some(NatAddresses::V4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED)),
            ports: None,
            persistent: false,
            hash: false,
            random: false,
        };
        CtCapabilities {
            state: field("ct_state(0x1/0x1)"),
            state_nat: field("ct_state(0x40/0x40)"),
            zone: field("ct_zone(0x1)"),
            mark: field("ct_mark(0x1)"),
            label: field("ct_label(0x1)"),
            orig_tuple: tuple(
                "ct_tuple4(src=192.0.2.1,dst=192.0.2.2,proto=6,tp_src=1,tp_dst=2)",
                TRIAL_KEY_IPV4,
            ),
            orig_tuple6: tuple(
                "ct_tuple6(src=2001:db8::1,dst=2001:db8::2,proto=6,src_port=1,dst_port=2)",
                TRIAL_KEY_IPV6,
            ),
            clear: self.takes(TRIAL_KEY, &[DpAction::CtClear(CtClear)]),
            event_mask: action(CtAction { event_mask: Some(1), ..commit.clone() }),
            // The policy need not exist.
            timeout: action(CtAction { timeout: CtName::new("sluice_trial"), ..commit.clone() }),
            timeout_names: TimeoutNames::ByProtocol,
            zero_snat: action(CtAction { nat: CtNat::New(zero), ..commit }),
            // A missing module of a helper is an error of the first packet.
            helpers: true,
        }
    }
}

/// Probes the kernel's capabilities.
pub(super) fn capabilities(ovs: &Ovs, ifindex: u32) -> Found {
    let trial = Trial { ovs, ifindex };
    let vlans = if trial.key(
        "in_port(0),eth_type(0x88a8),vlan(vid=1,pcp=0),encap(eth_type(0x8100),vlan(vid=2,pcp=0),encap(eth_type(0x88b5)))",
    ) {
        2
    } else {
        1
    };
    let labels = (1..=LABELS_MAX).rev().find(|n| {
        let label = |i: u8| format!("label={i},tc=0,ttl=64,bos={}", u8::from(i == *n));
        let all: Vec<String> = (1..=*n).map(label).collect();
        trial.key(&format!("in_port(0),eth_type(0x8847),mpls({})", all.join(",")))
    });
    let nested =
        |n: u8| (0..n).fold("0".to_string(), |inner, _| format!("sample(sample=50.0%,actions({inner}))"));
    let foreign = |kind, content: &[u8]| {
        trial.takes(TRIAL_KEY, &[DpAction::Foreign(Foreign { kind, content: content.into() })])
    };
    let ct = trial.ct();
    let limits = KeyLimits {
        vlans,
        mpls: labels.unwrap_or(0),
        ct: ct.state && ct.zone && ct.mark,
        ct_labels: ct.label,
        ct_tuple: ct.orig_tuple && ct.orig_tuple6,
    };
    let can = Capabilities {
        max_vlan_headers: vlans,
        max_mpls_depth: limits.mpls,
        recirc: trial.key(&format!("recirc_id(0x1),{TRIAL_KEY}")),
        explicit_drop: trial.actions("drop"),
        masked_set: true,
        ufid: true,
        sample_nesting: (1..=NESTING_MAX).rev().find(|n| trial.actions(&nested(*n))).unwrap_or(0),
        tnl_push_pop: false,
        lb_output: false,
        set_arp_nd_icmp: false,
        nd_ext: false,
        truncate: trial.actions("trunc(20),0"),
        clone: trial.actions("clone(0),0"),
        max_hash_algorithm: u8::from(trial.actions("hash(sym_l4(0))")),
        check_pkt_len: trial.actions("check_pkt_len(size=100,gt(0),le(0))"),
        // An entry of zeros with EtherType 0x8847.
        add_mpls: foreign(ADD_MPLS, &[0, 0, 0, 0, 0x88, 0x47, 0, 0]),
        psample: trial.actions("psample(group=1)"),
        ct,
        queues: QueuePriority::ClassHandle,
        packet_types: false,
        key_limits: Some(limits),
        flow_actions_max: FLOW_ACTIONS_MAX,
    };
    Found { can, limits }
}

/// The processors of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cpus {
    /// Numbers of present processors, also offline ones.
    pub(super) present: Vec<u32>,
    /// Upper bound of possible numbers, exclusive.
    possible_end: u32,
}

impl Cpus {
    /// The processors of this machine.
    ///
    /// # Errors
    /// The kernel does not report them.
    pub(super) fn of_machine() -> io::Result<Cpus> {
        let read = |file: &str| {
            let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}"))?;
            parse_list(text.trim())
                .ok_or_else(|| io::Error::other(format!("cannot read {file} CPUs: {text}")))
        };
        Ok(Cpus::of(read("present")?, &read("possible")?))
    }

    fn of(present: Vec<u32>, possible: &[u32]) -> Cpus {
        let end = present.iter().chain(possible).max().map_or(1, |last| last + 1);
        Cpus { present, possible_end: end }
    }

    /// The socket for each possible processor number. A processor added later shares the socket of a present
    /// one.
    pub(super) fn pids(&self, sockets: &BTreeMap<u32, u32>) -> Vec<u32> {
        let all: Vec<u32> = sockets.values().copied().collect();
        let of = |cpu: u32| {
            let shared = all.get(cpu as usize % all.len().max(1)).copied().unwrap_or(0);
            sockets.get(&cpu).copied().unwrap_or(shared)
        };
        (0..self.possible_end).map(of).collect()
    }
}

/// Parses a list such as `0-3,8`; empty if malformed or with an impossible number.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    const NUMBERS_MAX: u32 = 8192;
    let mut all = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= NUMBERS_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        for (text, numbers) in [
            ("0", Some(vec![0])),
            ("0-3,8", Some(vec![0, 1, 2, 3, 8])),
            ("", None),
            ("x", None),
            ("1-", None),
            ("0-4000000000", None),
        ] {
            assert_eq!(parse_list(text), numbers, "{text}");
        }
    }

    /// Isolated and offline processors have sockets as well; gaps and later ones share existing ones.
    #[test]
    fn each_processor_has_a_socket_and_numbers_without_one_share() {
        let cpus = Cpus::of(vec![0, 2, 3], &[0, 1, 2, 3, 4, 5]);
        let sockets = BTreeMap::from([(0, 100), (2, 102), (3, 103)]);
        assert_eq!(cpus.pids(&sockets), [100, 102, 102, 103, 102, 103]);
        assert_eq!(Cpus::of(vec![0], &[0]).pids(&BTreeMap::from([(0, 9)])), [9]);
        assert!(Cpus::of(vec![0], &[0]).pids(&BTreeMap::new()).iter().all(|pid| *pid == 0));
    }

    #[test]
    fn versions() {
        assert_eq!(major_minor("6.1.0-56-amd64"), (6, 1));
        assert_eq!((major_minor("5.15"), major_minor("x")), ((5, 15), (0, 0)));
    }
}
