use super::*;
use flow::text::NoPortNames;
use ofp_actions::text::parse_actions;

fn step(table: u8, cookie: u64, actions: &str) -> RemainingActions {
    let actions = parse_actions(actions, &NoPortNames).unwrap_or_else(|e| panic!("{actions}: {e:?}"));
    RemainingActions { table: TableId(table), cookie, actions }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Sent by OVS 3.1 in OpenFlow 1.3; there, `goto_table` is an instruction among the actions, which OVS itself rejects.
#[test]
fn bytes_are_those_of_ovs() {
    let head = "00000000 80000014 29842ba9 e641cbfb b3239a8b 40b55ae0 00000000 80010008 00000005
        80060018 00000000 00190010 80000806 02000000 00770000
        80040005 01000000 80050010 00000000 00000000 00000077";
    let output = "80060018 00000000 00000010 00000002 00000000 00000000 80080008 00000001";
    let continuation = Continuation {
        bridge: hex("29842ba9e641cbfbb3239a8b40b55ae0").try_into().unwrap(),
        stack: vec![vec![0, 0, 0, 5]],
        mirrors: 0,
        conntracked: false,
        steps: vec![step(0, 0, "set_field:02:00:00:00:00:77->eth_src"), step(1, 0x77, "output:2")],
        action_set: Vec::new(),
        odp_port: 1,
        hidden: Vec::new(),
    };
    let bytes = hex(&format!("{head}{output}"));
    assert_eq!(Continuation::decode(&bytes, Version::V13, &Options::DEFAULT), Ok(continuation.clone()));
    assert_eq!(continuation.encode(Version::V13, &Options::DEFAULT), Some(bytes));
}

#[test]
fn what_is_written_is_read_in_every_version() {
    let resubmit = "output:2,resubmit(,4)";
    for (actions, read) in [
        ("output:2,goto_table:4", resubmit),
        (
            "resubmit(1,2),pop:NXM_NX_REG4[],note:01.02",
            "resubmit(1,2),pop:NXM_NX_REG4[],note:01.02.00.00.00.00",
        ),
        // Stock switches lose these.
        ("set_field:5->reg1,write_actions(output:4),goto_table:9", ""),
        ("clear_actions,write_metadata:5", ""),
    ] {
        let read = if read.is_empty() { actions } else { read };
        for version in (1..=6).map(Version) {
            let of = |actions: &str| Continuation {
                bridge: [7; 16],
                stack: vec![vec![1], vec![0; 16], vec![3, 4]],
                mirrors: 5,
                conntracked: true,
                steps: vec![step(3, 9, "output:1"), step(0, 0, actions), step(0, 1, "output:5")],
                action_set: vec![step(0, 0, "output:3").actions.remove(0)],
                odp_port: u32::MAX,
                hidden: vec![(1, 5), (16, u128::MAX)],
            };
            let bytes = of(actions).encode(version, &Options::DEFAULT).unwrap();
            assert_eq!(
                Continuation::decode(&bytes, version, &Options::DEFAULT),
                Ok(of(read)),
                "{actions} in {version:?}"
            );
        }
    }
}

#[test]
fn malformed_and_too_large_ones_are_refused() {
    for (bytes, error) in [
        ("00000000 80000008 01020304", ErrorKind::BpcBadLen),
        ("00000000 80000014 01020304", ErrorKind::BpcBadLen),
        ("00000000 80090008 00000000", ErrorKind::BpcBadType),
        ("00000000 80060018 00000000 00000010 00000002", ErrorKind::BpcBadLen),
        ("00000000 80060010 00000000 00000010 00000002", ErrorKind::BacBadLen),
    ] {
        assert_eq!(Continuation::decode(&hex(bytes), Version::V13, &Options::DEFAULT), Err(error), "{bytes}");
    }
    let mut many = hex("00000000");
    (0..=MAX_STACK).for_each(|_| many.extend(hex("80010008 00000001")));
    assert_eq!(Continuation::decode(&many, Version::V13, &Options::DEFAULT), Err(ErrorKind::BpcTooMany));
    let long = Continuation { stack: vec![vec![0; 128]; 400], ..Continuation::default() };
    assert_eq!(long.encode(Version::V13, &Options::DEFAULT), None);
}
