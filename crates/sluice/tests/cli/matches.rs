//! Commands that read matches in wire forms and write them again, beside those of `ovs-ofctl`. Left out are lines where
//! they differ on purpose: a packet type that OVS adds to an empty match, tags that OpenFlow 1.2 cannot express, headers
//! of unknown fields with bits outside their mask, tunnel metadata without a mapping.

use testkit::{RunDir, require_programs};

use crate::server::sluice;

/// Lines of `parse-nxm` and `parse-oxm`, valid and broken ones.
const ENTRIES: &str = "\
<any>
NXM_OF_IN_PORT(0000)
NXM_OF_IN_PORT(fffe), NXM_OF_ETH_TYPE(0800)
NXM_OF_ETH_DST(0002e30f80a4)
NXM_OF_ETH_DST_W(010000000000/010000000000)
NXM_OF_ETH_DST_W(ffffffffffff/010000000000)
NXM_OF_ETH_SRC_W(020898456ddb/012345abcdef)
NXM_OF_ETH_TYPE(0800)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_TOS(f0)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_TOS(41)
NXM_OF_VLAN_TCI(0000)
NXM_OF_VLAN_TCI(3123)
NXM_OF_VLAN_TCI_W(1123/1fff)
NXM_OF_VLAN_TCI_W(1123/ffff)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_SRC(ac100014)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_SRC_W(C0a80000/FFFF0000)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_SRC_W(C0D80000/FFFF0001)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_PROTO(06) NXM_OF_TCP_SRC(4231)
NXM_OF_ETH_TYPE(0800) NXM_OF_IP_PROTO(06) NXM_OF_TCP_SRC_W(4231/ff00)
NXM_OF_ETH_TYPE(0806) NXM_OF_ARP_OP(0001) NXM_OF_ARP_SPA(0a000001)
NXM_OF_ETH_TYPE(0806) NXM_OF_ARP_OP(0100)
NXM_OF_ETH_TYPE(86dd) NXM_NX_IPV6_SRC(20010db83c4d00010002000300040005)
NXM_OF_ETH_TYPE(86dd) NXM_NX_IPV6_SRC_W(20010db83c4d00010000000000000000/ffffffffffffffff0000000000000000)
NXM_OF_ETH_TYPE(86dd) NXM_OF_IP_PROTO(3a) NXM_NX_ICMPV6_TYPE(87) NXM_NX_ICMPV6_CODE(00) NXM_NX_ND_TARGET(20010db83c4d00010002000300040005)
NXM_NX_TUN_ID(00000000abcdef01)
NXM_NX_TUN_ID_W(84200000abcdef01/84200000FFFFFFFF)
NXM_NX_REG0(acebdf56)
NXM_NX_REG0_W(a0e0d050/f0f0f0f0)
NXM_NX_REG0_W(ffffffff/f0f0f0f0)
NXM_NX_REG0(ace)
NXM_NX_REG0(acebdf5678)
NXM_OF_IN_PORT(0001), NXM_OF_IN_PORT(0002)
NXM_OF_ETH_TYPE(0806) NXM_OF_TCP_SRC(4231)
00020802(0001)
00020802
OXM_OF_IN_PORT(00000001)
OXM_OF_METADATA(5a5a5a5a5a5a5a5a)
OXM_OF_VLAN_VID(1123)
OXM_OF_ETH_TYPE(0800), OXM_OF_IPV4_SRC(01020304)
bogus
BOGUS(12)
NXM_OF_IN_PORT
NXM_OF_IN_PORT(
NXM_OF_IN_PORT(zz)
NXM_OF_IN_PORT_W(0001/0001)
NXM_OF_ETH_TYPE(0800) NXM_NX_IP_FRAG(01)
NXM_OF_ETH_TYPE(0800) NXM_NX_IP_FRAG_W(01/03)
NXM_NX_PKT_MARK(12345678)
NXM_NX_CT_STATE_W(00000020/00000020)
ERICOXM_OF_PACKET_TYPE
ONFOXM_ET_TCP_FLAGS
NXM_OF_ETH_TYPE(894f) NXOXM_NSH_SPI(00112233)
NXM_NX_XXREG0(00112233445566778899aabbccddeeff)
OXM_OF_PKT_REG0(0011223344556677)
OXM_OF_PACKET_TYPE(00010800)
OXM_OF_ACTSET_OUTPUT(00000001)
ONFOXM_ET_ACTSET_OUTPUT(00000001)
OXM_OF_ETH_TYPE(0800) OXM_OF_IP_PROTO(06) OXM_OF_TCP_FLAGS(0012)
OXM_OF_ETH_TYPE(0800) OXM_OF_IP_PROTO(06) ONFOXM_ET_TCP_FLAGS(0012)";

/// Structures of OpenFlow 1.0.
const FIXED_10: &str = "\
003820ff 0000 000000000000 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000
003820fe 0001 000000000000 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000
003820fe fffe 000000000000 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000
003820ef 0000 000000000000 000000000000 0000 00 00 0800 00 00 0000 00000000 00000000 0000 0000
003820ff 0001 000000000000 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000
003820fd 0000 000000000000 000000000000 ffff 00 00 0000 00 00 0000 00000000 00000000 0000 0000
002820fd 0000 000000000000 000000000000 0005 05 00 0000 00 00 0000 00000000 00000000 0000 0000
003020ef 0000 000000000000 000000000000 0000 00 00 0800 00 00 0000 c0a80000 00000000 0000 0000
003820cf 0000 000000000000 000000000000 0000 00 00 0800 00 06 0000 00000000 00000000 0000 0000
0038208f 0000 000000000000 000000000000 0000 00 00 0800 00 06 0000 00000000 00000000 0050 0000
003820cf 0000 000000000000 000000000000 0000 00 00 0806 00 02 0000 00000000 00000000 0000 0000
0038208f 0000 000000000000 000000000000 0000 00 00 0800 00 01 0000 00000000 00000000 0003 0000
003820f7 0000 000000000000 010203040506 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000
003820fb 0000 010203040506 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000
001820ef 0000 000000000000 000000000000 0000 00 00 0800 20 00 0000 00000000 00000000 0000 0000
00382000
xyz
# comment
0000 0000";

/// Structures of OpenFlow 1.1.
const FIXED_11: &str = "\
0000 0058 00000000 000003ff 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000001 000003fe 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 01000001 000003fe 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0001 0058 00000001 000003fe 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0050 00000001 000003fe 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000003fd 000000000000ffffffffffff 000000000000ffffffffffff ffff 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000003fd 000000000000ffffffffffff 000000000000ffffffffffff fffe 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000003f9 000000000000ffffffffffff 000000000000ffffffffffff 0005 03 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000003f7 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0800 00 00 0a000000000000ff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000003d7 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0800 00 06 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 00000397 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0800 00 84 00000000ffffffff 00000000ffffffff 0050 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000002f7 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 8847 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000005 00 000000 0000000000000000ffffffffffffffff
0000 0058 00000000 000003ff 000000000000ffffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 1234000000000000000fffffffffffff
0000 0058 00000000 000003ff 010000000000feffffffffff 000000000000ffffffffffff 0000 00 00 0000 00 00 00000000ffffffff 00000000ffffffff 0000 0000 00000000 00 000000 0000000000000000ffffffffffffffff
0000 0058";

/// Tags and masks.
const TAGS: [&str; 12] = [
    "0 0",
    "0 ffff",
    "1000 1000",
    "1123 1fff",
    "0123 0fff",
    "f123 ffff",
    "0000 1000",
    "1000 ffff",
    "3000 f000",
    "0 1fff",
    "",
    "1 1 1",
];

/// Standard output and exit code of both tools, ours first.
fn both(dir: &RunDir, args: &[&str], input: &str) -> [(String, Option<i32>); 2] {
    let ours =
        sluice().env("OVS_RUNDIR", dir.path()).args(["ofctl"]).args(args).input(input).output().unwrap();
    let theirs = dir.tool("ovs-ofctl", None).args(args).input(input).output().unwrap();
    [ours, theirs].map(|out| (out.stdout, out.status.code()))
}

#[test]
fn matches_in_wire_forms_are_those_of_ovs() {
    require_programs!("ovs-ofctl");
    let dir = RunDir::new("matches").unwrap();
    let mut runs: Vec<(Vec<&str>, &str)> = Vec::new();
    for line in ENTRIES.lines() {
        runs.push((vec!["parse-nxm"], line));
        runs.push((vec!["--strict", "parse-nx-match"], line));
        runs.push((vec!["parse-oxm", "OpenFlow12"], line));
        runs.push((vec!["--strict", "parse-oxm", "OpenFlow15"], line));
    }
    runs.extend(FIXED_10.lines().map(|line| (vec!["parse-ofp10-match"], line)));
    runs.extend(FIXED_11.lines().map(|line| (vec!["parse-ofp11-match"], line)));
    runs.extend(
        TAGS.iter().map(|tag| (["check-vlan"].into_iter().chain(tag.split_whitespace()).collect(), "")),
    );
    runs.push((vec!["parse-oxm", "OpenFlow10"], ""));
    runs.push((vec!["parse-nxm"], "# a comment\nNXM_OF_IN_PORT(0001)\nbogus\n<any>"));
    let mut wrong = String::new();
    for (args, input) in &runs {
        let [ours, theirs] = both(&dir, args, &format!("{input}\n"));
        if ours != theirs {
            wrong += &format!("{args:?} {input}\n--- ours\n{ours:?}\n--- stock\n{theirs:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // A match with bits outside its mask, which OVS tries to write.
    let out = sluice().args(["ofctl", "check-vlan", "1123", "0fff"]).output().unwrap();
    assert!(!out.status.success() && out.stderr.contains("bits outside the mask"), "{}", out.stderr);
}
