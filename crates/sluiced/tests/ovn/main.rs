//! OVN on top of the switch: Debian's `ovn-northd`, databases and `ovn-controller`, unmodified, with chassis and machines
//! as namespaces and real packets.
//!
//! Each probe runs on Sluice (`ovn_on_sluice`) and, as the oracle, on Debian's Open vSwitch (`ovn_on_stock`). They are the stage
//! `ovn` of `cargo xtask check-long`; one with two chassis is a part of `check`.
#![forbid(unsafe_code)]

mod balancers;
mod basics;
mod gateways;
mod lab;
mod life;
mod security;
mod sockets;

use lab::Kind;

/// Each probe as a test on either switch.
macro_rules! probes {
    ($($module:ident: $($name:ident),+;)+) => {
        /// The probes on Sluice.
        mod ovn_on_sluice {
            $($(
                #[test]
                #[ignore = "stage ovn of check-long"]
                fn $name() {
                    testkit::require_netns!();
                    crate::lab::require_ovn!();
                    crate::$module::$name(crate::Kind::Sluice);
                }
            )+)+
        }

        /// The same probes on Debian's switch.
        mod ovn_on_stock {
            $($(
                #[test]
                #[ignore = "stage ovn of check-long"]
                fn $name() {
                    testkit::require_netns!();
                    crate::lab::require_ovn!();
                    crate::$module::$name(crate::Kind::Stock);
                }
            )+)+
        }
    };
}

probes! {
    basics: switches_and_routers, three_chassis, dhcp_and_router_advertisements, names_are_resolved,
        neighbours_are_answered, multicast;
    security: security_groups, rejects_and_established, meters_and_the_log, quality_of_service,
        sampled_lists;
    balancers: load_balancers, health_checks, affinity;
    gateways: failover, floating_addresses, gateway_routers, too_long_for_gateways, provider_networks, learned_neighbours;
    life: migration, restarts, takeover, traces, capabilities;
}

/// The part of `check`.
#[test]
fn sluice_connects_machines_of_ovn() {
    testkit::require_netns!();
    lab::require_ovn!();
    basics::switches_and_routers(Kind::Sluice);
}
