//! Numbers of ports; ports are tested as part of a switch.

use super::*;

#[test]
fn a_number_waits_for_the_flows_of_its_last_port_unless_it_is_requested() {
    let mut ports = Ports::default();
    let spec = |number: Option<u32>| PortSpec {
        name: "p".to_string(),
        options: dpif::NullPort.into(),
        mac: None,
        mtu: None,
        number: number.map(DpPort),
    };
    let next = |ports: &mut Ports, asked| ports.number_for(&spec(asked), false, |_| false).unwrap().0;
    assert_eq!(next(&mut ports, None), 1);
    let departure = ports.depart(DpPort(1));
    let of_thread = departure.clone();
    drop(departure);
    assert_eq!((next(&mut ports, None), next(&mut ports, Some(1))), (2, 1));
    drop(of_thread);
    assert_eq!(next(&mut ports, None), 1);
    let all: Vec<_> = (1..datapath::PORT_NUMBERS).map(|n| ports.depart(DpPort(n))).collect();
    assert_eq!(next(&mut ports, None), 1, "better than none");
    drop(all);
}
