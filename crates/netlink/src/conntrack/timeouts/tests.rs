use super::*;
use flow::nlattr::AttrWriter;

fn id(n: u32) -> TimeoutId {
    TimeoutId(n.try_into().unwrap())
}

fn hex(message: &NlRequest) -> String {
    format!("{message:?}")
}

#[test]
fn names_are_those_of_open_vswitch() {
    let own: Vec<_> = names(id(7)).collect();
    let expected = ["tcp4", "tcp6", "udp4", "udp6", "icmp4", "icmpv6"].map(|kind| format!("ovs_tp_7_{kind}"));
    assert_eq!(own, expected);
    // The longest fits `CTNL_TIMEOUT_NAME_MAX`.
    assert!(names(id(u32::MAX)).all(|name| name.len() < 32));
    assert_eq!(names(id(u32::MAX)).count(), KINDS.len());
}

#[test]
fn each_kind_has_its_own_timeouts() {
    let missing = Conntrack::MISSING_TIMEOUTS.iter().copied();
    let mut known: Vec<TimeoutAttr> =
        [TCP, UDP, ICMP].concat().into_iter().map(|(_, attr)| attr).chain(missing).collect();
    known.sort();
    assert_eq!(known, TimeoutAttr::ALL.map(|(attr, _)| attr));
    let policy: TimeoutPolicy =
        [(TimeoutAttr::UdpSingle, 3), (TimeoutAttr::UdpFirst, 9)].into_iter().collect();
    let made = creations(id(1), &policy).unwrap();
    let with_three = |m: &&NlRequest| hex(m).contains("0, 0, 0, 3");
    let with: Vec<_> = made.iter().filter(with_three).map(NlRequest::asked).collect();
    assert_eq!(with, ["set timeout policy ovs_tp_1_udp4", "set timeout policy ovs_tp_1_udp6"]);
    assert_eq!(deletions(id(1)).unwrap().len(), KINDS.len());
}

/// A policy as the kernel reports it.
fn reported(name: &str, proto: u8, timeouts: &[(u16, u32)]) -> Vec<u8> {
    let mut out = AttrWriter::behind(vec![2, 0, 0, 0]);
    out.text(attr::NAME, name);
    out.be16(attr::L3PROTO, 2);
    out.u8(attr::L4PROTO, proto);
    out.be32(5, 1);
    out.nested(attr::DATA, |data| timeouts.iter().for_each(|(number, s)| data.be32(*number, *s)));
    out.finish().unwrap()
}

#[test]
fn policies_of_this_form_are_read() {
    let udp = reported("ovs_tp_3_udp4", 17, &[(1, 30), (2, 180), (9, 5)]);
    let expected = [(TimeoutAttr::UdpSingle, 30), (TimeoutAttr::UdpMultiple, 180)].into_iter().collect();
    assert_eq!(parse(&udp), Ok(Some((id(3), expected))));
    assert_eq!(parse(&reported("ovs_tp_3_icmp4", 1, &[])), Ok(Some((id(3), TimeoutPolicy::default()))));
    for other in
        ["mine", "ovs_tp_", "ovs_tp_3", "ovs_tp_0_tcp4", "ovs_tp_3_sctp4", "ovs_tp_03_tcp4", "ovs_tp_x_tcp4"]
    {
        assert_eq!(parse(&reported(other, 6, &[])), Ok(None), "{other}");
    }
    assert!(parse(&[2, 0, 0, 0]).is_err());
    for end in 0..udp.len() {
        let _cut = fuzz_policy(&udp[..end]);
    }
}
