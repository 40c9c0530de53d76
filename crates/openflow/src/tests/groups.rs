//! Groups on the wire, as ovs-ofctl 3.1 sends them.

use super::hex;
use crate::msg::group::*;
use crate::text::parse_group_mod;
use crate::{Format, GROUP_ANY, Message, Version, decode, encode};
use flow::OfPort;
use flow::fields::FieldId;
use flow::text::NoPortNames;
use ofp_actions::Output;

/// `add-group group_id=17,type=select,selection_method=hash,selection_method_param=9,
/// fields(ip_src=255.255.0.0,tcp_dst),bucket=weight=5,output:2` in OpenFlow 1.0.
const SELECT_10: &str = "0104007000000002000023200000001f000001000000001100180000ffffffff\
    001800080000000000000008000200000000000800050000ffff00360000154d00000001000000006861736800000000\
    0000000000000000000000000000000900000e04ffff000000001402ffff0000";

#[test]
fn a_selection_method_has_fields() {
    let (version, xid, message) = decode(&hex(SELECT_10)).unwrap();
    let bucket = Bucket {
        id: 0,
        weight: 5,
        watch_port: OfPort::NONE,
        watch_group: GROUP_ANY,
        actions: vec![Output { port: OfPort(2), max_len_bytes: 0 }.into()],
    };
    let fields = vec![(FieldId::IpSrc, 0xffff_0000), (FieldId::TcpDst, 0xffff)];
    let selection = Some(Selection { method: "hash".into(), param: 9, fields });
    let group = Group { ty: GroupType::Select, id: 17, buckets: vec![bucket], selection };
    let expected =
        GroupMod { format: Format::Nxt, command: GroupModCommand::Add, command_bucket_id: BUCKET_ALL, group };
    assert_eq!((version, xid, &message), (Version::V10, 2, &Message::GroupMod(expected)));
    assert_eq!(encode(&message, version, xid), Ok(hex(SELECT_10)));
}

#[test]
fn the_older_number_of_the_selection_method_is_taken() {
    let with = |vendor| decode(&hex(&SELECT_10.replace("0000154d", vendor))).map(|(.., m)| m);
    assert_eq!(with("00001540").unwrap(), with("0000154d").unwrap());
    assert_eq!(with("0000154e").unwrap_err().kind.name(), "OFPBPC_BAD_EXP_TYPE");
}

#[test]
fn fields_of_a_selection_method_are_checked() {
    let refused = |at: usize, byte: u8| {
        let mut message = hex(SELECT_10);
        message[at] = byte;
        decode(&message).unwrap_err().kind.name()
    };
    assert_eq!(refused(98, 0x0f), "OFPBMC_BAD_MASK", "with a mask");
    assert_eq!(refused(97, 0x7f), "OFPBMC_BAD_FIELD", "unknown");
    assert_eq!(refused(107, 4), "OFPBMC_BAD_FIELD", "length");
}

/// `add-group` of OVS 3.5 in OpenFlow 1.5.
#[test]
fn fields_are_sorted_and_masks_of_whole_fields_have_ones_in_unused_bits() {
    const TEXT: &str = "group_id=3,type=select,selection_method=hash,\
        fields(ip_dscp,tcp_flags,ipv6_label,ip_dst=255.255.255.0,nsh_spi,reg0=0xff),bucket=actions=drop";
    const SENT: &str = "060f008000000006000001000000000300100000ffffffff001000000000000000000008\
        00010000ffff00570000154d0000000100000000686173680000000000000000000000000000000000000000\
        00010004000000ff80001804ffffff0080003804ffffffff80001001ff80005402ffffffff0808005ad650ffffffff00";
    let group = parse_group_mod(TEXT, GroupModCommand::Add, &NoPortNames).unwrap();
    assert_eq!(encode(&Message::GroupMod(group.clone()), Version::V15, 6), Ok(hex(SENT)));
    assert_eq!(decode(&hex(SENT)).unwrap().2, Message::GroupMod(group));
}
