//! Compared with `ovs-vsctl`: the same lines on the same database, or on two with equal initial contents.
//!
//! The servers' schema is 8.8.0; the stock tool may have an older one, and then omits the new columns from a
//! listing of all: such listings are compared only for tables known alike to both.

use testkit::{Output, require_programs};

use crate::server::{DbServer, code};

/// `ovs-vsctl: text` and `sluice vsctl: text` become `text`; log lines of the stock tool and our warnings are
/// removed.
fn messages(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("|WARN|") && !line.contains("vsctl: warning: "));
    let bare = |line: &str| {
        let line = line.strip_prefix("ovs-vsctl: ").or(line.strip_prefix("sluice vsctl: ")).unwrap_or(line);
        line.to_string() + "\n"
    };
    lines.map(bare).collect()
}

/// Replaces UUIDs by `UUID`: they differ between two databases.
fn without_uuids(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_uuid = rest.get(..36).is_some_and(|word| word.parse::<ovsdb::value::Uuid>().is_ok());
        let step = if is_uuid { 36 } else { rest.chars().next().map_or(1, char::len_utf8) };
        out.push_str(if is_uuid { "UUID" } else { &rest[..step] });
        rest = &rest[step..];
    }
    out
}

/// Differences between the two outputs. Without `uuids` the tools ran on separate databases, with other UUIDs
/// and another row order.
fn compare(line: &[&str], ours: &Output, stock: &Output, uuids: bool) -> Vec<String> {
    let text = |text: &str| {
        if uuids {
            return text.to_string();
        }
        let text = without_uuids(text);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    let parts = [
        ("standard output", text(&ours.stdout), text(&stock.stdout)),
        ("standard error", messages(&ours.stderr), messages(&stock.stderr)),
        ("exit code", code(ours).to_string(), code(stock).to_string()),
    ];
    let different = parts.iter().filter(|(_, ours, stock)| ours != stock);
    different
        .map(|(what, ours, stock)| format!("{line:?}: {what}\n--- ours\n{ours}\n--- stock\n{stock}\n"))
        .collect()
}

/// A read-only line on one database. The stock tool's order within a bucket of its hash map is unpredictable,
/// so texts may differ in the order of records.
fn read(db: &DbServer, line: &[&str]) -> Vec<String> {
    let (mut ours, mut stock) = (db.ours(line).output().unwrap(), db.stock(line).output().unwrap());
    if ours.stdout != stock.stdout {
        for output in [&mut ours, &mut stock] {
            let mut records: Vec<&str> = output.stdout.trim_end_matches('\n').split("\n\n").collect();
            records.sort_unstable();
            output.stdout = records.join("\n\n");
        }
    }
    compare(line, &ours, &stock, true)
}

/// Words of a line; between two `'` blanks do not separate.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars().chain([' ']) {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            }
            c => word.push(c),
        }
    }
    words
}

fn fill(db: &DbServer) {
    for line in [
        "add-br br0 -- add-port br0 p0 tag=3 -- set interface p0 type=internal options:a=b 'options:c=\"x y\"'",
        "add-br beef -- add-br a.b -- set bridge a.b other_config:x-y=1.2 other_config:z=a_b external-ids:t=true",
        "set bridge beef external-ids:u=5f1f2a4e-8a3f-4b8e-b7cf-2a3a1b2c3d4e external-ids:é=ü external-ids:q='a\"b'",
        "set-manager ptcp:6640 ssl:1.2.3.4:66 -- set-controller br0 tcp:1.2.3.4 -- set-fail-mode br0 secure",
        "--bootstrap set-ssl /k /c /ca",
        "set port p0 trunks=1,2,3-5 -- set open . external-ids:hostname=h other_config:n=5 ovs_version=3.5.0",
        "-- --id=@q create qos type=linux-htb queues:0=@z queues:7=@z -- --id=@z create queue dscp=3 -- set port p0 qos=@q",
        "-- --id=@m create mirror name=m0 select-all=true -- set bridge br0 mirrors=@m",
        "-- --id=@d create datapath datapath_version=0 capabilities:max_vlan_headers=1 -- set open . datapaths:netdev=@d",
        "add-zone-tp netdev zone=9 udp_first=1 udp_single=2 -- add-aa-mapping br0 100 10 -- add-aa-mapping br0 50 12",
        "add-bond br0 bond0 e1 e2 lacp=active bond_mode=balance-slb -- set interface e1 statistics:rx=5 error='\"no e1\"'",
    ] {
        let words = split(line);
        db.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Lines that only read.
const READING: &[&str] = &[
    "show",
    "--oneline show",
    "list-br",
    "list-ports br0",
    "list-ifaces br0",
    "get-controller br0",
    "get-manager",
    "get-ssl",
    "list ssl",
    "get-fail-mode br0",
    "br-get-external-id beef",
    "br-get-external-id beef u",
    "port-to-br bond0",
    "iface-to-br e2",
    "list port",
    "list bridge",
    "list bridge a.b br0",
    "list interface",
    "list qos p0",
    "list queue",
    "list controller br0",
    "list manager",
    "list open",
    "list sflow",
    "--columns=name,_uuid,ports list bridge",
    "--columns=name,trunks,tag find port tag=3",
    "--columns=name find port tag=[]",
    "--columns=name find port tag!=3",
    "--columns=name find interface type=internal",
    "--columns=name find interface 'type=\"\"'",
    "--columns=name find interface options:a=b",
    "--columns=name find interface options:a!=b",
    "--columns=name find interface options:a{!=}b",
    "--columns=name find port trunks{>=}2",
    "--columns=name find port trunks{<}1,2,3,4,5,6",
    "--columns=name find port trunks{in}1,2,3,4,5",
    "--columns=name find port trunks{not-in}1",
    "--columns=name find port tag>2 tag<=3",
    "--columns=name find interface statistics:rx>=5",
    "--columns=name find interface 'name{in}e1,e2'",
    "--columns=name find bridge external-ids{>=}t=true",
    "--if-exists get interface p0 options:zz",
    "--if-exists get interface nope options",
    "get interface p0 options",
    "get interface p0 options:c type name _uuid",
    "get int p0 opt",
    "get open . bridges external-ids:hostname",
    "get bridge br0",
    "list-br -- list controller -- show -- list queue",
    "comment a b",
    "br-exists br0",
    "br-exists no",
    "br-to-vlan br0",
    "br-to-parent br0",
    "wait-until bridge br0 fail_mode=secure",
    "set bridge br0 fail_mode=secure",
    "init",
    "--bare --columns=name find port",
    "--columns=_uuid find queue dscp=3",
    "list-dp-cap netdev",
    "list-zone-tp netdev",
    "get-aa-mapping br0",
    "get-aa-mapping beef",
];

#[test]
fn output_equals_the_stock_tool() {
    require_programs!("ovs-vsctl");
    let db = DbServer::new(3);
    fill(&db);
    let mut wrong = Vec::new();
    for line in READING {
        let words = split(line);
        wrong.extend(read(&db, &words.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    for style in [
        "--format=table",
        "--format=csv",
        "--format=json",
        "--format=list",
        "--format=json --pretty",
        "--data=json",
        "--data=bare",
        "--bare",
        "--no-headings",
        "--format=table --no-headings",
        "--format=csv --data=bare",
        "--format=table --max-column-width=10",
        "--max-column-width=3",
        "--format=table --data=bare",
    ] {
        let line = format!(
            "{style} --columns=name,ports,fail_mode,external_ids list bridge -- list queue -- list-br"
        );
        wrong.extend(read(&db, &line.split(' ').collect::<Vec<_>>()));
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn lines_have_the_same_effects_and_errors() {
    require_programs!("ovs-vsctl");
    let (ours, stock) = (DbServer::new(3), DbServer::new(3));
    for db in [&ours, &stock] {
        fill(db);
    }
    let dump = [
        "show",
        "--columns=name,external_ids,other_config,stp_enable,fail_mode find bridge name=br0",
        "--columns=name,tag,trunks,bond_mode find port name=p0",
        "--columns=name,type,options find interface name=p0",
        "--columns=target find controller",
        "--columns=name find mirror",
        "--columns=type,other_config find qos",
        "get open . external_ids next_cfg",
        "--columns=timeouts list CT_Timeout_Policy",
        "--columns=mappings list AutoAttach",
    ];
    let mut wrong = Vec::new();
    for line in LINES {
        let words = split(line);
        let words: Vec<&str> = std::iter::once("--no-wait").chain(words.iter().map(String::as_str)).collect();
        let (one, other) = (ours.ours(&words).output().unwrap(), stock.stock(&words).output().unwrap());
        wrong.extend(compare(&words, &one, &other, false));
        let sorted = |db: &DbServer| {
            let words: Vec<String> = dump.iter().flat_map(|line| split(&format!("-- {line}"))).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let text = without_uuids(&db.ours(&words).run().unwrap().stdout);
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        let (one, other) = (sorted(&ours), sorted(&stock));
        if one != other {
            wrong.push(format!("after {line}: the databases differ\n{one:#?}\n{other:#?}\n"));
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// Valid and invalid ones.
const LINES: &[&str] = &[
    "add-br",
    "add-br a b",
    "add-br a b c d",
    "add-br br0",
    "--may-exist add-br br0",
    "add-br p0",
    "add-br e1",
    "del-br xx",
    "--if-exists del-br xx",
    "foo",
    "--foo list-br",
    "list-br --foo",
    "--may-exist list-br",
    "",
    "--",
    "add-port brx p1",
    "add-port br0 p0",
    "--may-exist add-port br0 p0 tag=9",
    "--may-exist add-port beef p0",
    "del-port br0",
    "del-port px",
    "del-port beef p0",
    "--if-exists del-port px",
    "--if-exists del-port beef p0",
    "add-port br0 br0",
    "add-port br0 e1",
    "port-to-br px",
    "iface-to-br px",
    "port-to-br br0",
    "iface-to-br br0",
    "br-set-external-id br0 k v",
    "br-set-external-id br0 k",
    "br-set-external-id br0 b c",
    "get-controller no",
    "del-controller br0",
    "set-controller br0 tcp:5.6.7.8 tcp:1.1.1.1",
    "del-fail-mode br0",
    "set-fail-mode br0 x",
    "set-fail-mode br0 standalone",
    "del-manager",
    "set-manager ptcp:6641",
    "set-ssl /k /c",
    "set-ssl /k2 /c2 /ca2",
    "del-ssl",
    "set port p0 tag=9999",
    "set port p0 vlan_mode=zz",
    "set port p0 tag=abc",
    "set interface p0 name=x",
    "set interface p0 '{a=b'",
    "set interface p0 options:a",
    "set interface p0 type:a=b",
    "set bridge br0 stp_enable=maybe",
    "set bridge br0 stp_enable",
    "set bridge br0 stp_enable=true",
    "set port p0 tag=1,2",
    "set port p0 trunks=1,1",
    "set port p0 trunks=[1",
    "set port p0 trunks=[1]x",
    "set interface p0 type=",
    "set interface p0 'options={a:b}'",
    "set interface p0 'options={a=b, c=\"d e\"}'",
    "set interface p0 options:a\\,b=c",
    "set interface p0 'options:\"k 1\"=\"v 1\"'",
    "set interface p0 options:k=a=b,c",
    "set interface p0 'options:k=\"'",
    "set interface p0 'options:k\\'",
    "set interface p0 'options:\"k=v'",
    "set interface p0 options=",
    "set interface p0 =x",
    "set interface p0 :a=b",
    "set interface p0 options:=x",
    "set bridge br0 other_config:x=1 other_config:y=2",
    "set bridge br0 other_config=y=3",
    "set bridge br0 _uuid=x",
    "add port p0 trunks 9 10",
    "remove port p0 trunks 1 2 77",
    "add port p0 tag 3",
    "add bridge br0 other_config a=b z=9",
    "remove interface p0 options k",
    "remove interface p0 options a=x",
    "remove interface p0 options nope",
    "remove interface p0 name p0",
    "clear interface p0 name",
    "clear interface p0 options",
    "clear interface p0 type",
    "clear port p0 interfaces",
    "clear bridge br0 other_config stp",
    "find bridge foo",
    "find port tag?1",
    "list bridge abcd",
    "list nope",
    "list",
    "--columns=foo list bridge",
    "--columns= list bridge",
    "get b br0 n",
    "get x br0 n",
    "get bridge br0 nonsense",
    "get bridge br0 name:x",
    "get interface p0 options:zz",
    "get interface px name",
    "get bridge br0 name=x",
    "create bridge name=zz",
    "create qos type=linux-htb other_config:max-rate=1",
    "--id=@x create mirror name=y",
    "set bridge br0 mirrors=@q",
    "--id=x create mirror name=y",
    "-- --id=@a create queue dscp=1 -- --id=@a create queue dscp=2",
    "destroy qos zz",
    "--if-exists destroy qos zz",
    "destroy qos",
    "--all destroy qos p0",
    "-- --id=@i get interface p0 name -- set interface p0 external-ids:a=b",
    "destroy mirror m0",
    "add-bond br0 bond1 e3",
    "add-bond br0 bond1 e3 a=b",
    "add-bond br0 bond1 e3 e4 tag=7",
    "--may-exist add-port br0 bond1",
    "--may-exist add-bond br0 bond1 e4 e3",
    "--may-exist add-bond br0 bond1 e4 e5",
    "add-port br0 e9 tag",
    "add-port br0 'x y' -- set interface 'x y' type=dummy -- set port 'x y' tag=4",
    "del-port br0 'x y'",
    "--with-iface del-port e4",
    "--with-iface del-port nope",
    "add-br brn -- add-port brn pn -- del-br brn",
    "add-port br0 pm -- nonsense",
    "add-port br0 pm -- del-port pm -- list-ports br0",
    "add-br bra -- br-exists bra",
    "br-exists bra -- add-br brz",
    "--if-exists set bridge nope name=x",
    "set bridge br0",
    "set nope x y=z",
    "-- --may-exist=1 add-br q",
    "--dry-run add-br zz",
    "add-zone-tp netdev zone=1 icmp_first=2 icmp_reply=3",
    "add-zone-tp netdev zone=1 icmp_first=2 icmp_reply=3",
    "--may-exist add-zone-tp netdev zone=1 icmp_first=9",
    "add-zone-tp netdev zone=3 udp_first=1 udp_single=2",
    "list-zone-tp netdev",
    "add-zone-tp nodp zone=2 a=b",
    "add-zone-tp netdev zone=4",
    "del-zone-tp netdev zone=1",
    "del-zone-tp netdev zone=1",
    "--if-exists del-zone-tp netdev zone=1",
    "del-zone-tp nodp zone=1",
    "list-zone-tp nodp",
    "list-zone-tp",
    "list-zone-tp netdev",
    "list-dp-cap nodp",
    "list-dp-cap netdev",
    "add-bond-iface p0 e8",
    "add-bond-iface p0 e8",
    "--may-exist add-bond-iface p0 e8",
    "--may-exist add-bond-iface bond0 e8",
    "add-bond-iface nop e7",
    "add-bond-iface p0 bond0",
    "list-ifaces br0",
    "del-bond-iface bond0 e8",
    "del-bond-iface e8",
    "del-bond-iface p0",
    "del-bond-iface e8",
    "--if-exists del-bond-iface e8",
    "del-bond-iface nop e1",
    "add-aa-mapping br0 200 11",
    "add-aa-mapping br0 100 13",
    "get-aa-mapping br0",
    "add-aa-mapping nobr 100 10",
    "add-aa-mapping br0 x 10",
    "add-aa-mapping br0 100 y",
    "add-aa-mapping br0 100",
    "del-aa-mapping br0 200 12",
    "del-aa-mapping br0 200 11",
    "del-aa-mapping beef 200 11",
    "get-aa-mapping br0",
    "set bridge br0 other_config:hwaddr=00:00:00:00:00:01 flood_vlans=3",
    "set interface p0 ingress_policing_rate=5 other_config:z=1",
    "emer-reset x",
    "emer-reset",
    "--columns=name,other_config,flood_vlans,mirrors,controller list bridge br0",
    "--columns=name,other_config,trunks list port",
    "--columns=name,ingress_policing_rate,other_config list interface",
    "--columns=manager_options,ssl list open",
    "add-br fb0 br0 3000",
    "list-br",
    "--real list-br",
    "--fake list-br",
    "--real --fake list-br",
    "br-exists fb0",
    "br-to-vlan fb0",
    "br-to-parent fb0",
    "br-to-vlan br0",
    "br-to-parent br0",
    "list-ports fb0",
    "list-ifaces fb0",
    "list-ports br0",
    "list-ifaces br0",
    "--columns=name,tag,fake_bridge,external_ids list port fb0",
    "--columns=name,type list interface fb0",
    "add-port fb0 q1",
    "add-port fb0 q2 tag=7",
    "--columns=name,tag list port q1 q2",
    "list-ports fb0",
    "list-ports br0",
    "port-to-br q1",
    "iface-to-br q1",
    "port-to-br q2",
    "port-to-br fb0",
    "iface-to-br fb0",
    "list-ifaces fb0",
    "--may-exist add-port fb0 q1",
    "--may-exist add-port br0 q1",
    "br-set-external-id fb0 a b",
    "br-set-external-id fb0 bridge-id xx",
    "br-get-external-id fb0",
    "br-get-external-id fb0 a",
    "br-get-external-id fb0 z",
    "br-get-external-id br0",
    "br-set-external-id fb0 a",
    "--columns=external_ids list port fb0",
    "add-br fb1 br0 3000",
    "add-br fb1 br0 4096",
    "add-br fb1 br0 -1",
    "add-br fb1 nobr 7",
    "add-br fb1 fb0 7",
    "add-br fb0 br0 9",
    "add-br br0 br0 9",
    "--may-exist add-br fb0 br0 3000",
    "--may-exist add-br fb0 br0 6",
    "--may-exist add-br fb0 beef 3000",
    "--may-exist add-br fb0",
    "--may-exist add-br br0 br0 5",
    "add-br fb2 br0",
    "add-br q1 br0 8",
    "add-br fb1 br0 0",
    "br-to-vlan fb1",
    "add-port fb1 q3",
    "list-ports fb1",
    "del-port br0 q1",
    "del-port fb0 q1",
    "del-port fb0 q2",
    "del-port br0 fb0",
    "del-port fb0",
    "add-bond fb0 fbond fa fb",
    "--columns=name,tag list port fbond",
    "list-ifaces fb0",
    "set-controller br0 tcp:1.2.3.4",
    "set-controller fb0 tcp:1.2.3.4",
    "get-controller fb0",
    "del-controller fb0",
    "del-controller br0",
    "set-fail-mode fb0 secure",
    "get-fail-mode fb0",
    "del-fail-mode fb0",
    "add-aa-mapping fb0 200 11",
    "show",
    "del-br fb0",
    "--fake list-br",
    "list-ports br0",
    "--columns=name,tag,fake_bridge list port",
    "del-br br0",
    "show",
];
