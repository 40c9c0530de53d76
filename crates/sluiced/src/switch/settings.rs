//! Settings of the whole switch and of its bridges, carried out.
//!
//! Each structure is taken apart without `..`: a new setting that nothing carries out does not compile.

use super::{Switch, prefixes};
use crate::config::DaemonConfig;
use crate::exporters::Export;
use crate::openflow::OpenFlowOptions;
use crate::reactor::Reactor;
use ofproto::ports::BridgeId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use sync::lock;
use vswitch::SupportedTypes;
use vswitch::config::{BridgeOptions, FlowTableConfig, GlobalConfig, SslConfig};
use vswitch::plan::BridgeSettings;

/// Types of datapaths and ports that this system supports.
pub(super) fn supported_types(config: &DaemonConfig) -> SupportedTypes {
    let mut supported = SupportedTypes::userspace();
    if config.kernel {
        match dpif_netlink::available() {
            Ok(version) => supported.add_kernel(&version),
            Err(e) => log::info!(target: "dpif_netlink", "no kernel datapath: {e}"),
        }
    }
    supported.with_dummies(config.dummies)
}

impl Switch {
    pub(super) fn set_global(&mut self, global: Arc<GlobalConfig>, reactor: &mut Reactor) {
        let GlobalConfig {
            stats_update_interval_ms,
            enable_statistics,
            metrics,
            ssl,
            // Settings of datapaths, also of those created later.
            flow_limit: _,
            max_idle_ms: _,
            max_revalidator_ms: _,
            bundle_idle_s: _,
            min_revalidate_pps: _,
            handler_threads: _,
            revalidator_threads: _,
            threads: _,
            vlan_limit: _,
            // Followed with the datapaths.
            restore: _,
            flow_restore_wait: _,
            hw_offload: _,
            upcall_dispatch: _,
        } = &*global;
        self.facts.set_interval_ms(*stats_update_interval_ms);
        self.facts.set_machine(*enable_statistics);
        self.metrics.clone_from(metrics);
        reactor.tls.configure(&tls_settings(&self.tls, ssl.as_ref()));
        self.instances.set_global(global);
    }

    pub(super) fn configure(&mut self, bridge: BridgeId, settings: &BridgeSettings) {
        // Devices and ports have the address.
        let BridgeSettings { options, datapath_id, mac: _ } = settings;
        let BridgeOptions {
            // Part of `settings.datapath_id` and `settings.mac`.
            datapath_id: _,
            hwaddr: _,
            fail_mode,
            protocols,
            mac_aging_time_s,
            mac_table_size,
            forward_bpdu,
            flood_vlans,
            mcast,
            disable_in_band,
            in_band_queue,
            dp_desc,
            dp_sn,
            flow_tables,
            netflow,
            sflow,
            ipfix,
            sample_sets,
            local_groups,
            explicit_sampled_drops,
        } = options;
        let (mut tables, mut prefixes) = (BTreeMap::new(), BTreeMap::new());
        for (number, FlowTableConfig { settings, prefixes: fields }) in flow_tables {
            tables.insert(*number, settings.clone());
            prefixes.extend(fields.clone().map(|fields| (*number, fields)));
        }
        let Some(instance) = self.instances.of_bridge(bridge) else { return };
        instance.backer.change_bridge(bridge, |b| {
            b.forward_bpdu = *forward_bpdu;
            b.set_flood_vlans(flood_vlans);
            b.set_mcast(*mcast);
            prefixes::log(&b.name, &prefixes);
            b.tables.set_prefixes(&prefixes);
            b.tables.set_settings(&tables);
            lock(&b.macs).configure(*mac_aging_time_s, *mac_table_size as usize);
        });
        instance.backer.evict_excess(bridge);
        let options = OpenFlowOptions {
            datapath_id: *datapath_id,
            fail_mode: *fail_mode,
            protocols,
            disable_in_band: *disable_in_band,
            in_band_queue: *in_band_queue,
            dp_desc: dp_desc.as_deref(),
            dp_sn: dp_sn.as_deref(),
        };
        self.openflow.configure(bridge, &options, sys::clock::monotonic_ms());
        let export = Export {
            sets: sample_sets.clone(),
            local_groups: local_groups.clone(),
            explicit_drops: *explicit_sampled_drops,
            datapath_id: *datapath_id,
            ..Export::default()
        };
        self.set_export(bridge, netflow.as_ref(), sflow.as_ref(), ipfix.as_ref(), export);
    }
}

/// Keys and certificates in force: those of the row, with the parameters of the command line.
fn tls_settings(given: &tls::Settings, row: Option<&SslConfig>) -> tls::Settings {
    let Some(SslConfig { private_key, certificate, ca_cert, bootstrap_ca_cert }) = row else {
        return given.clone();
    };
    tls::Settings {
        private_key: Some(PathBuf::from(private_key)),
        certificate: Some(PathBuf::from(certificate)),
        ca_cert: Some(PathBuf::from(ca_cert)),
        bootstrap: *bootstrap_ca_cert || given.bootstrap && given.ca_cert.is_none(),
        ..given.clone()
    }
}
