use super::*;
use crate::slow_path::slow_reasons;
use l2proto::Protocol;
use proptest::prelude::*;

const BRIDGE: [u8; 16] = *b"0123456789abcdef";

fn info(cookie: UserCookie) -> CookieInfo {
    CookieInfo { cookie, in_port: OfPort(0x0102_0304), bridge: BRIDGE }
}

#[test]
fn cookies_are_laid_out_as_stock_switches_do() {
    let slow = write_cookie(&info(UserCookie::SlowPath {
        reasons: SlowReason::Action.bit() | SlowReason::Match.bit(),
    }));
    let expected = [
        &2u16.to_ne_bytes()[..],
        &[0; 2],
        &0x0102_0304u32.to_ne_bytes(),
        &BRIDGE,
        &[0; 4],
        &96u32.to_ne_bytes(),
        &[0; 16],
    ];
    assert_eq!(slow[..], expected.concat());
    let controller = ControllerCookie {
        recirc_id: RecircId(9),
        rule_cookie: 0x0123_4567_89ab_cdef,
        reason: 2,
        controller_id: 3,
        max_len_bytes: 128,
        continuation: false,
    };
    let expected = [
        &5u16.to_ne_bytes()[..],
        &[0; 2],
        &0x0102_0304u32.to_ne_bytes(),
        &BRIDGE,
        &[0; 2],
        &2u16.to_ne_bytes(),
        &9u32.to_ne_bytes(),
        &[1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef],
        &3u16.to_ne_bytes(),
        &128u16.to_ne_bytes(),
        &[0; 4],
    ];
    assert_eq!(write_cookie(&info(UserCookie::Controller(controller)))[..], expected.concat());
}

#[test]
fn other_cookies_are_refused() {
    let good = write_cookie(&info(UserCookie::SlowPath { reasons: 0 }));
    let with = |at: usize, bytes: &[u8]| {
        let mut c = good;
        c[at..at + bytes.len()].copy_from_slice(bytes);
        parse_cookie(&c).map(|c| c.cookie)
    };
    assert_eq!(parse_cookie(&good[..47]), Err(CookieError::Size(47)));
    assert_eq!(parse_cookie(&[]), Err(CookieError::Size(0)));
    assert_eq!(with(0, &9u16.to_ne_bytes()), Err(CookieError::Kind(9)));
    let unknown = with(28, &0x100u32.to_ne_bytes());
    assert_eq!(unknown, Err(CookieError::Value("slow path reasons", 0x100)));
    assert_eq!(unknown.unwrap_err().to_string(), "userdata with slow path reasons 256");
    // CFM, BFD, LACP, STP, LLDP: a cookie of a protocol that this switch lacks is foreign.
    for bit in [1u32, 2, 4, 8, 16] {
        let known = Protocol::ALL.iter().find(|protocol| protocol.ovs_slow_path() == bit);
        let reasons = known.map(|protocol| SlowReason::Link(*protocol).bit());
        let read = reasons.map(|reasons| UserCookie::SlowPath { reasons });
        assert_eq!(with(28, &bit.to_ne_bytes()), read.ok_or(CookieError::Value("slow path reasons", bit)));
    }
    let controller = 5u16.to_ne_bytes();
    let mut odd = good;
    odd[..2].copy_from_slice(&controller);
    for (at, what, value) in [(24, "dont_send", 1), (25, "continuation", 2)] {
        let mut c = odd;
        c[at] = value;
        assert_eq!(parse_cookie(&c), Err(CookieError::Value(what, value.into())));
    }
    odd[26..28].copy_from_slice(&300u16.to_ne_bytes());
    assert_eq!(parse_cookie(&odd), Err(CookieError::Value("reason", 300)));
}

proptest! {
    #[test]
    fn cookies_are_read_as_written(
        reasons in slow_reasons(),
        recirc_id: u32,
        rule_cookie: u64,
        reason: u8,
        controller_id: u16,
        max_len_bytes: u16,
        continuation: bool,
        in_port: u32,
        bridge: [u8; 16],
    ) {
        let recirc_id = RecircId(recirc_id);
        let controller =
            ControllerCookie { recirc_id, rule_cookie, reason, controller_id, max_len_bytes, continuation };
        for cookie in [UserCookie::SlowPath { reasons }, UserCookie::Controller(controller)] {
            let info = CookieInfo { cookie, in_port: OfPort(in_port), bridge };
            prop_assert_eq!(parse_cookie(&write_cookie(&info)), Ok(info));
        }
    }
}

/// Actions that sample with cookies of [`sample_cookies`], some with a report of the tunnel.
pub(crate) fn sample_actions(
    vlan_tci: impl Strategy<Value = u16>,
    bridge: impl Strategy<Value = u32> + Clone,
) -> impl Strategy<Value = UserCookie> {
    (sample_cookies(vlan_tci, bridge), any::<bool>()).prop_map(|(cookie, reports)| {
        let port = match cookie {
            UserCookie::Ipfix(c) => c.output_port,
            UserCookie::FlowSample(c) => c.output_port,
            UserCookie::Sflow(_) | UserCookie::SlowPath { .. } | UserCookie::Controller(_) => DpPort::NONE,
        };
        cookie.with_tunnel_out(port).filter(|_| reports).unwrap_or(cookie)
    })
}

/// Cookies of samples with these tags and numbers of bridges.
fn sample_cookies(
    vlan_tci: impl Strategy<Value = u16>,
    bridge: impl Strategy<Value = u32> + Clone,
) -> impl Strategy<Value = UserCookie> {
    let direction =
        prop_oneof![Just(FlowDirection::ByPort), Just(FlowDirection::Ingress), Just(FlowDirection::Egress)];
    let sflow = (vlan_tci, any::<u32>())
        .prop_map(|(vlan_tci, output)| UserCookie::Sflow(SflowCookie { vlan_tci, output }));
    let ipfix = (any::<u32>(), bridge.clone())
        .prop_map(|(port, bridge)| IpfixCookie { output_port: DpPort(port), tunnel_out: false, bridge })
        .prop_map(UserCookie::Ipfix);
    let flow = (any::<(u16, u32, u32, u32, u32)>(), direction, bridge).prop_map(
        |((probability, collector_set, domain, point, port), direction, bridge)| {
            let output_port = DpPort(port);
            UserCookie::FlowSample(FlowSampleCookie {
                probability,
                collector_set,
                domain,
                point,
                output_port,
                tunnel_out: false,
                direction,
                bridge,
            })
        },
    );
    prop_oneof![sflow, ipfix, flow]
}
