//! Text of groups, against ovs-ofctl 3.1.

use super::*;
use crate::msg::group::GroupModCommand::{self, Add, Delete, InsertBucket, RemoveBucket};
use flow::text::NoPortNames;

fn parsed(command: GroupModCommand, text: &str) -> String {
    match parse_group_mod(text, command, &NoPortNames) {
        Ok(m) => format_group(&m.group, true, &NoPortNames),
        Err(e) => format!("error: {}", e.message),
    }
}

#[test]
fn groups_are_printed_as_parsed() {
    for (text, printed) in [
        (
            "group_id=1,type=all,bucket=output:1,bucket=output:2",
            "bucket=bucket_id:0,actions=output:1,bucket=bucket_id:1,actions=output:2",
        ),
        (
            "group_id=1 type=all bucket=1 bucket=actions=2,3",
            "bucket=bucket_id:0,actions=output:1,bucket=bucket_id:1,actions=output:2,output:3",
        ),
        ("group_id=1,type=all", ""),
        ("group_id=1,type=all,bucket=drop", "bucket=bucket_id:0,actions=drop"),
        ("group_id=1,type=all,bucket=bucket_id:7,actions=group:3", "bucket=bucket_id:7,actions=group:3"),
    ] {
        let expected = format!("group_id=1,type=all,{printed}");
        assert_eq!(parsed(Add, text), expected.trim_end_matches(','), "{text}");
    }
    for text in [
        "group_id=2,type=select,selection_method=dp_hash,bucket=bucket_id:5,weight:10,actions=output:1,bucket=bucket_id:7,weight:0,actions=output:2",
        "group_id=3,type=select,selection_method=hash,fields(ip_src,tcp_dst=65280),bucket=bucket_id:0,actions=output:1",
        "group_id=3,type=select,selection_method=hash,selection_method_param=7,fields=eth_dst,bucket=bucket_id:0,actions=output:1",
        "group_id=4,type=ff,bucket=bucket_id:0,watch_port:1,actions=output:1,bucket=bucket_id:1,watch_port:3,watch_group:1,actions=output:2",
        "group_id=5,type=indirect,bucket=bucket_id:0,actions=learn(table=1,NXM_OF_ETH_SRC[]=NXM_OF_ETH_DST[]),set_field:5->tcp_src,output:1",
    ] {
        assert_eq!(parsed(Add, text), text);
    }
}

#[test]
fn bad_groups_are_refused() {
    for (command, text, error) in [
        (Add, "type=all", "must specify a group_id"),
        (Add, "group_id=1", "must specify a type"),
        (Add, "group_id=0xffffff01,type=all", "invalid group id 4294967041"),
        (Add, "group_id=1,type=odd", "invalid group type odd"),
        (Add, "group_id=1,type=indirect", "an indirect group has exactly one bucket"),
        (
            Add,
            "group_id=1,type=ff,bucket=output:2",
            "fast failover bucket requires watch_port or watch_group",
        ),
        (Add, "group_id=1,type=all,bucket=weight=5,output:2", "Only select groups can have bucket weights."),
        (Add, "group_id=1,type=all,bucket=bucket_id=1,2,bucket=bucket_id=1,3", "bucket_id 1 is used twice"),
        (Add, "group_id=1,type=all,bucket=goto_table:1", "goto_table instruction not allowed here"),
        (Add, "group_id=1,type=all,odd=3", "unknown keyword odd"),
        (
            Add,
            "group_id=1,type=select,selection_method=hash,fields(nw_proto=3),bucket=1",
            "3: invalid mask for field nw_proto",
        ),
        (
            Add,
            "group_id=1,type=select,selection_method=hash,fields(nw_proto=0),bucket=1",
            "values are wildcards here and must not be all-zeros",
        ),
        (
            Add,
            "group_id=1,type=select,selection_method=hash,fields(ip_src,ip_src),bucket=1",
            "ip_src: duplicate field",
        ),
        (
            Add,
            "group_id=1,type=select,selection_method_param=5,bucket=1",
            "selection_method_param is only allowed with \"selection_method\"",
        ),
        (
            Add,
            "group_id=1,type=select,selection_method=dp_hash,fields(ip_dst),bucket=1",
            "fields may only be specified with \"selection_method=hash\"",
        ),
        (Add, "group_id=1,type=all,command_bucket_id=5", "command bucket id is not needed"),
        (Delete, "group_id=1,command_bucket_id=5", "command bucket id is not needed"),
        (Delete, "type=all", "type is not needed"),
        (Delete, "group_id=1,selection_method=hash", "selection method is not needed"),
        (RemoveBucket, "group_id=1,fields(ip_dst)", "fields are not needed"),
        (InsertBucket, "group_id=1,command_bucket_id=all,bucket=1", "command_bucket_id=all is not permitted"),
        (
            Add,
            "group_id=1,type=select,bucket=bucket_id=4294967295,actions=1",
            "invalid bucket_id id 4294967295",
        ),
        (Delete, "group_id=1,bucket=1", "bucket is not needed"),
        (InsertBucket, "group_id=1,bucket=1", "must specify a command bucket id"),
    ] {
        assert_eq!(parsed(command, text), format!("error: {error}"), "{text}");
    }
}

#[test]
fn commands_name_groups_and_places() {
    let of = |command, text| {
        let m = parse_group_mod(text, command, &NoPortNames).unwrap();
        (m.group.id, m.command_bucket_id)
    };
    assert_eq!(of(Delete, ""), (0xffff_fffc, 0xffff_ffff));
    assert_eq!(of(Delete, "group_id=all"), (0xffff_fffc, 0xffff_ffff));
    assert_eq!(of(Delete, "group_id=5"), (5, 0xffff_ffff));
    assert_eq!(of(InsertBucket, "group_id=5,command_bucket_id=first,bucket=1"), (5, 0xffff_fffd));
    assert_eq!(of(RemoveBucket, "group_id=5,command_bucket_id=last"), (5, 0xffff_fffe));
    assert_eq!(of(RemoveBucket, "group_id=5,command_bucket_id=9"), (5, 9));
}

#[test]
fn the_corpus_is_replayed() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/group_text"),
        crate::fuzz::group_text,
    );
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/meter_text"),
        crate::fuzz::meter_text,
    );
    testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/capture"), crate::fuzz::capture);
    let entries = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/match_entries");
    testkit::replay_corpus(entries, crate::fuzz::match_entries);
}

#[test]
fn meters_are_parsed() {
    use crate::msg::meter::MeterModCommand;
    for (command, text, expected) in [
        (MeterModCommand::Add, "meter=1,kbps,burst,stats,bands=type=drop,rate=100,burst_size=5", "1 13 1"),
        (
            MeterModCommand::Modify,
            "meter=0x7 pktps band=type=dscp_remark,rate=5,prec_level=2,type=drop,rate=1",
            "7 2 2",
        ),
        (MeterModCommand::Add, "meter=controller,pktps,bands=", "4294967294 2 0"),
        (MeterModCommand::Delete, "", "4294967295 0 0"),
        (MeterModCommand::Delete, "meter=3", "3 0 0"),
        (MeterModCommand::Delete, "3", "field 3 missing value"),
        (MeterModCommand::Add, "meter=2,pktps", "must specify bands"),
        (MeterModCommand::Add, "bands=type=drop,rate=1", "must specify 'meter'"),
        (
            MeterModCommand::Add,
            "meter=2,band=type=drop,rate=1",
            "meter must specify either 'kbps' or 'pktps'",
        ),
        (MeterModCommand::Add, "meter=2,foo,band=type=drop,rate=1", "field foo missing value"),
        (MeterModCommand::Add, "meter=2,pktps,band=type=drop", "band must have 'rate'"),
        (MeterModCommand::Add, "meter=2,pktps,band=rate=1", "band must start with the 'type' keyword"),
        (MeterModCommand::Add, "meter=2,pktps,band=type=drip,rate=1", "field type unknown value drip"),
        (
            MeterModCommand::Add,
            "meter=2,pktps,band=type=drop,rate=1,burst_size=5",
            "band may have 'burst_size' only when 'burst' flag is set",
        ),
        (MeterModCommand::Add, "meter=4294901761,pktps,band=type=drop,rate=1", "invalid meter id 4294901761"),
    ] {
        let got = match parse_meter_mod(text, command) {
            Ok(m) => format!("{} {} {}", m.meter.id, m.meter.flags, m.meter.bands.len()),
            Err(error) => error.message,
        };
        assert_eq!(got, expected, "{text}");
    }
}

/// As OVS 3.1 logs them.
#[test]
fn messages_are_described_for_the_log() {
    for (hex, text) in [
        ("0100000800000001", "OFPT_HELLO (xid=0x1):\n version bitmap: 0x01"),
        ("0400001000000001000100080000_0010", "OFPT_HELLO (OF1.3) (xid=0x1):\n version bitmap: 0x04"),
        ("0112000800000007", "OFPT_BARRIER_REQUEST (xid=0x7):"),
        ("0113000800000007", "OFPT_BARRIER_REPLY (xid=0x7):"),
        ("0110000c00000002_0003_0000", "OFPST_TABLE request (xid=0x2):"),
        ("0412001000000002_000c_0000_00000000", "OFPST_TABLE_FEATURES request (OF1.3) (xid=0x2):"),
        ("0104001800000006_00002320_0000000f_0100000000000000", "NXT_FLOW_MOD_TABLE_ID (xid=0x6): enable"),
        (
            "010e004800000006_003820ff_00000000000000000000000000000000000000000000000000000000000000000000\
             0000_0000000000000000_0003_0000_0000_8000_ffffffff_ffff_0000",
            "OFPT_FLOW_MOD (xid=0x6): DEL actions=drop",
        ),
        // Unknown, and cut short.
        ("01ff000800000007", "unknown message (xid=0x7):"),
        ("0104000800000007", "unknown message (xid=0x7):"),
        ("", "unknown message (OF 0x00) (xid=0x0):"),
    ] {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let frame: Vec<u8> = digits.chunks(2).map(byte).collect();
        assert_eq!(describe(&frame, &ofp_wire::Options::DEFAULT), text);
    }
}
