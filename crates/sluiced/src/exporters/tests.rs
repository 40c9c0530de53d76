use super::*;

#[test]
fn the_agent_is_a_device_an_address_or_the_way_to_collectors() {
    let of_device = |name: &str| (name == "eth7").then(|| "192.0.2.7".parse().unwrap());
    let loopback: SocketAddr = "127.0.0.1:6343".parse().unwrap();
    for (agent, targets, wanted) in [
        (Some("eth7"), &[][..], Some("192.0.2.7")),
        (Some("2001:db8::1"), &[], Some("2001:db8::1")),
        (Some("nothing"), &[], None),
        (Some("nothing"), &[loopback], Some("127.0.0.1")),
        (None, &[loopback], Some("127.0.0.1")),
    ] {
        let address = agent_address(agent, of_device, targets);
        assert_eq!(address, wanted.map(|text| text.parse().unwrap()), "{agent:?}");
    }
}

#[test]
fn probabilities_are_those_of_stock_switches() {
    for (sampling, wanted) in [(1, u32::MAX), (2, u32::MAX / 2), (400, u32::MAX / 400), (u32::MAX, 1), (0, 1)]
    {
        assert_eq!(probability(sampling), wanted);
    }
}
