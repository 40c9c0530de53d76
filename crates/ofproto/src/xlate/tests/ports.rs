//! Packets to controllers, meters for them, and port configuration.

use super::*;

#[test]
fn controllers_meters_and_misses() {
    let rig = Rig::new();
    let (a, b) = (rig.a, rig.b);
    let rig = rig
        .rules(
            a,
            "priority=2,tcp actions=meter:3,controller(id=4),2
             priority=1,udp actions=meter:9,controller(id=4,meter_id=3),controller(meter_id=9),9
             priority=0 actions=controller",
        )
        .rules(b, "actions=meter:3,1");
    // Each bridge has its own meters; an unknown one limits nothing.
    rig.backer.set_meter(a, 3, Some(1));
    rig.backer.set_meter(b, 3, Some(0));
    rig.acts(TCP, "meter(1),controller(reason=1,id=4),2");
    let udp = TCP.replace("tcp", "udp");
    let of_copy = "sample(meter(1),controller(reason=1,id=4))";
    rig.acts(&udp, &format!("{of_copy},controller(reason=1,id=0),meter(0),11"));
    // The meter of all packet-ins limits those without their own.
    rig.backer.set_meter(a, openflow::msg::meter::CONTROLLER, Some(2));
    rig.acts(&udp, &format!("{of_copy},sample(meter(2),controller(reason=1,id=0)),meter(0),11"));
    rig.backer.set_meter(a, openflow::msg::meter::CONTROLLER, None);
    // From the table-miss rule the reason is a miss by that rule.
    rig.acts("in_port=1,arp", "controller(reason=6,id=0)");
    Rig::new().acts(TCP, "drop");
    // Unknown ports belong to packet-outs and traces: tables see their packets.
    rig.acts("in_port=77,arp", "controller(reason=6,id=0)");
}

#[test]
fn an_output_to_controllers_says_from_where_it_comes() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "priority=0 actions=controller
         priority=1,arp actions=controller(userdata=01)
         priority=2,udp actions=write_actions(controller)
         table=9,priority=0 actions=controller(userdata=01)",
    );
    let udp = TCP.replace("tcp", "udp");
    rig.acts(TCP, "controller(reason=6,id=0)");
    rig.acts(&udp, "controller(reason=3,id=0)");
    let packet_out = |packet: &str, actions: &str| {
        let m =
            parse_flow_mod(&format!("actions={actions}"), FlowModCommand::Add, &NoPortNames).expect(actions);
        let (view, flow) = (rig.backer.view(), Rig::flow(packet));
        let start = Start::Actions(&m.actions);
        let request = Request { view: &view, bridge: rig.a, flow: &flow, start, trace: false };
        show(&translate(&request, &mut rig.backer.xlate_host(true, 1000)).actions)
    };
    assert_eq!(packet_out(TCP, "controller"), "controller(reason=5,id=0)");
    assert_eq!(packet_out(TCP, "table"), "controller(reason=5,id=0)");
    assert_eq!(packet_out(&udp, "table"), "controller(reason=5,id=0)");
    // An output with options has the reason of its rule.
    assert_eq!(packet_out("in_port=1,arp", "table"), "controller(reason=1,id=0)");
    assert_eq!(packet_out(TCP, "resubmit(,9)"), "controller(reason=6,id=0)");
}

#[test]
fn ports_receive_and_forward_as_they_are_configured() {
    let configured = |change: fn(&mut PortConfigBits)| {
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(a, "actions=1,2,in_port");
        rig.backer.change_bridge(a, |b| {
            let ports = Arc::make_mut(&mut b.ports);
            change(&mut Arc::make_mut(ports.ports.get_mut(&OfPort(1)).expect("made by the rig")).config);
        });
        rig
    };
    let stp = "in_port=1,dl_type=0x5ff,dl_dst=01:80:c2:00:00:00";
    let other = "in_port=1,dl_type=0x5ff,dl_dst=01:80:c2:00:00:01";
    // As in OVS, a frame with a type is none of a spanning tree.
    let typed = "in_port=1,dl_type=0x1234,dl_dst=01:80:c2:00:00:00";
    let cases: [(fn(&mut PortConfigBits), &str, &str, bool); 6] = [
        (|c| c.no_recv = true, "2,1", "drop:ForwardingDisabled", true),
        (|c| c.no_recv_stp = true, "drop:ForwardingDisabled", "2,1", true),
        (
            |c| (c.no_recv, c.no_recv_stp) = (true, true),
            "drop:ForwardingDisabled",
            "drop:ForwardingDisabled",
            false,
        ),
        (|c| c.port_down = true, "2,1", "2,1", false),
        (|c| c.no_fwd = true, "2", "2", false),
        (|c| c.no_stp = true, "2,1", "2,1", false),
    ];
    for (n, (change, of_stp, of_other, looks)) in cases.into_iter().enumerate() {
        let rig = configured(change);
        let t = rig.acts(stp, of_stp);
        assert_eq!(t.wc.0.dl_dst == [0xff; 6], looks, "{n}");
        rig.acts(other, of_other);
        assert_eq!(rig.acts(typed, of_other).wc.0.dl_dst, [0; 6], "{n}");
        // Nor does the bridge send a packet-out from a port that does not receive.
        for (packet, expected) in [(stp, of_stp), (other, of_other), (typed, of_other)] {
            let (view, flow) = (rig.backer.view(), Rig::flow(packet));
            let actions = ofp_actions::text::parse_actions("1,2,in_port", &NoPortNames).unwrap();
            let start = Start::Actions(&actions);
            let request = Request { view: &view, bridge: rig.a, flow: &flow, start, trace: false };
            let t = translate(&request, &mut rig.backer.xlate_host(true, 1000));
            assert_eq!(show(&t.actions), expected, "{n} {packet}");
        }
    }
}
