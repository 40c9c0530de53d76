//! The built-in schemas: `Open_vSwitch` (from ovs-vswitchd.conf.db(5)) and `_Server` (ovsdb-server(5)), in
//! the notation of [`super::notation`].

use std::sync::{Arc, LazyLock};

use super::{DatabaseSchema, notation};

/// The version of [`open_vswitch`].
pub const OPEN_VSWITCH_VERSION: &str = "8.8.0";

/// The checksum of [`open_vswitch`], as its upstream file states it: by it tools tell whether a file needs conversion.
const OPEN_VSWITCH_CKSUM: &str = "2823623553 27869";

/// The `Open_vSwitch` schema of this version.
pub fn open_vswitch() -> Arc<DatabaseSchema> {
    static SCHEMA: LazyLock<Arc<DatabaseSchema>> = LazyLock::new(|| {
        built_in("Open_vSwitch", OPEN_VSWITCH_VERSION, Some(OPEN_VSWITCH_CKSUM), OPEN_VSWITCH)
    });
    SCHEMA.clone()
}

/// The `_Server` schema, with the databases of a server.
pub fn server() -> Arc<DatabaseSchema> {
    static SCHEMA: LazyLock<Arc<DatabaseSchema>> =
        LazyLock::new(|| built_in("_Server", "1.2.0", None, SERVER));
    SCHEMA.clone()
}

fn built_in(name: &str, version: &str, cksum: Option<&str>, text: &str) -> Arc<DatabaseSchema> {
    match notation::read(name, version, text) {
        Ok(schema) => Arc::new(DatabaseSchema { cksum: cksum.map(str::to_string), ..schema }),
        Err(error) => unreachable!("a built-in schema is valid, which a test checks: {error}"),
    }
}

const SERVER: &str = "
table Database
  cid       uuid?
  connected boolean
  index     integer?
  leader    boolean
  model     string(clustered|relay|standalone)
  name      string
  schema    string?
  sid       uuid?
";

const OPEN_VSWITCH: &str = "
table Open_vSwitch root max=1
  bridges            @Bridge*
  cur_cfg            integer
  datapath_types     string*
  datapaths          string=>@Datapath*
  db_version         string?
  dpdk_initialized   boolean
  dpdk_version       string?
  external_ids       string=>string*
  iface_types        string*
  manager_options    @Manager*
  next_cfg           integer
  other_config       string=>string*
  ovs_version        string?
  ssl                @SSL?
  statistics~        string=>string*
  system_type        string?
  system_version     string?
table Bridge index=name
  auto_attach             @AutoAttach?
  controller              @Controller*
  datapath_id~            string?
  datapath_type           string
  datapath_version        string
  external_ids            string=>string*
  fail_mode               string(standalone|secure)?
  flood_vlans             integer(0..4095){4096}
  flow_tables             integer(0..254)=>@Flow_Table*
  ipfix                   @IPFIX?
  mcast_snooping_enable   boolean
  mirrors                 @Mirror*
  name!                   string
  netflow                 @NetFlow?
  other_config            string=>string*
  ports                   @Port*
  protocols               string(OpenFlow10|OpenFlow11|OpenFlow12|OpenFlow13|OpenFlow14|OpenFlow15)*
  rstp_enable             boolean
  rstp_status~            string=>string*
  sflow                   @sFlow?
  status~                 string=>string*
  stp_enable              boolean
table Port index=name
  bond_active_slave   string?
  bond_downdelay      integer
  bond_fake_iface     boolean
  bond_mode           string(balance-tcp|balance-slb|active-backup)?
  bond_updelay        integer
  cvlans              integer(0..4095){4096}
  external_ids        string=>string*
  fake_bridge         boolean
  interfaces          @Interface+
  lacp                string(active|passive|off)?
  mac                 string?
  name!               string
  other_config        string=>string*
  protected           boolean
  qos                 @QoS?
  rstp_statistics~    string=>integer*
  rstp_status~        string=>string*
  statistics~         string=>integer*
  status~             string=>string*
  tag                 integer(0..4095)?
  trunks              integer(0..4095){4096}
  vlan_mode           string(trunk|access|native-tagged|native-untagged|dot1q-tunnel)?
table Interface index=name
  admin_state~                   string(up|down)?
  bfd                            string=>string*
  bfd_status~                    string=>string*
  cfm_fault~                     boolean?
  cfm_fault_status~              string*
  cfm_flap_count                 integer?
  cfm_health~                    integer(0..100)?
  cfm_mpid                       integer?
  cfm_remote_mpids~              integer*
  cfm_remote_opstate~            string(up|down)?
  duplex~                        string(half|full)?
  error                          string?
  external_ids                   string=>string*
  ifindex~                       integer(0..4294967295)?
  ingress_policing_burst         integer(0..)
  ingress_policing_kpkts_burst   integer(0..)
  ingress_policing_kpkts_rate    integer(0..)
  ingress_policing_rate          integer(0..)
  lacp_current~                  boolean?
  link_resets~                   integer?
  link_speed~                    integer?
  link_state~                    string(up|down)?
  lldp                           string=>string*
  mac                            string?
  mac_in_use~                    string?
  mtu~                           integer?
  mtu_request                    integer(1..)?
  name!                          string
  ofport                         integer?
  ofport_request                 integer(1..65279)?
  options                        string=>string*
  other_config                   string=>string*
  statistics~                    string=>integer*
  status~                        string=>string*
  type                           string
table Flow_Table
  external_ids      string=>string*
  flow_limit        integer(0..)?
  groups            string*
  name              string?
  overflow_policy   string(refuse|evict)?
  prefixes          string{4}
table QoS root
  external_ids   string=>string*
  other_config   string=>string*
  queues         integer(0..4294967295)=>@Queue*
  type           string
table Queue root
  dscp           integer(0..63)?
  external_ids   string=>string*
  other_config   string=>string*
table Mirror
  external_ids      string=>string*
  filter            string?
  name              string
  output_port       @~Port?
  output_vlan       integer(1..4095)?
  select_all        boolean
  select_dst_port   @~Port*
  select_src_port   @~Port*
  select_vlan       integer(0..4095){4096}
  snaplen           integer(14..65535)?
  statistics~       string=>integer*
table NetFlow
  active_timeout        integer(-1..)
  add_id_to_interface   boolean
  engine_id             integer(0..255)?
  engine_type           integer(0..255)?
  external_ids          string=>string*
  targets               string+
table sFlow
  agent          string?
  external_ids   string=>string*
  header         integer?
  polling        integer?
  sampling       integer?
  targets        string+
table IPFIX
  cache_active_timeout   integer(0..4200)?
  cache_max_flows        integer(0..4294967295)?
  external_ids           string=>string*
  obs_domain_id          integer(0..4294967295)?
  obs_point_id           integer(0..4294967295)?
  other_config           string=>string*
  sampling               integer(1..4294967295)?
  stats_interval         integer(1..3600)?
  targets                string*
  template_interval      integer(1..3600)?
table Flow_Sample_Collector_Set root index=id,bridge
  bridge           @Bridge
  external_ids     string=>string*
  id               integer(0..4294967295)
  ipfix            @IPFIX?
  local_group_id   integer(0..4294967295)?
table Controller
  connection_mode          string(in-band|out-of-band)?
  controller_burst_limit   integer(25..)?
  controller_queue_size    integer(1..512)?
  controller_rate_limit    integer(100..)?
  enable_async_messages    boolean?
  external_ids             string=>string*
  inactivity_probe         integer?
  is_connected~            boolean
  local_gateway            string?
  local_ip                 string?
  local_netmask            string?
  max_backoff              integer(1000..)?
  other_config             string=>string*
  role~                    string(other|master|slave)?
  status~                  string=>string*
  target                   string
  type                     string(primary|service)?
table Manager index=target
  connection_mode    string(in-band|out-of-band)?
  external_ids       string=>string*
  inactivity_probe   integer?
  is_connected~      boolean
  max_backoff        integer(1000..)?
  other_config       string=>string*
  status~            string=>string*
  target             string
table Datapath
  capabilities            string=>string*
  ct_zone_default_limit   integer(0..4294967295)?
  ct_zones                integer(0..65535)=>@CT_Zone*
  datapath_version        string
  external_ids            string=>string*
table CT_Zone
  external_ids     string=>string*
  limit            integer(0..4294967295)?
  timeout_policy   @CT_Timeout_Policy?
table CT_Timeout_Policy
  external_ids   string=>string*
  timeouts       string(tcp_syn_sent|tcp_syn_recv|tcp_established|tcp_fin_wait|tcp_close_wait|tcp_last_ack|tcp_time_wait|tcp_close|tcp_syn_sent2|tcp_retransmit|tcp_unack|udp_first|udp_single|udp_multiple|icmp_first|icmp_reply)=>integer(0..4294967295)*
table SSL max=1
  bootstrap_ca_cert   boolean
  ca_cert             string
  certificate         string
  external_ids        string=>string*
  private_key         string
table AutoAttach
  mappings             integer(0..16777215)=>integer(0..4095)*
  system_description   string
  system_name          string
";
