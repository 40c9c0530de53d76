//! The tables of commands: the rows of each module. The order of modules has no meaning.

use super::{
    Rows, bond, conntrack, database, datapath, detrace, dpctl_datapaths, drops, dummy, dumps, fdb, features,
    flow_files, flows, general, implementations, link_protocols, loop_times, mdb, parsing, perf, pmd, qos,
    routes, slowpath, threads, trace,
};

/// Commands of every switch.
pub(super) fn switch() -> Vec<Rows> {
    [HANDLERS, &[link_protocols::rows()]].concat()
}

/// Commands of every switch that have a handler here.
const HANDLERS: &[Rows] = &[
    bond::ROWS,
    conntrack::ROWS,
    conntrack::fragments::ROWS,
    conntrack::limits::ROWS,
    conntrack::settings::ROWS,
    conntrack::views::ROWS,
    datapath::ROWS,
    detrace::ROWS,
    drops::ROWS,
    dumps::ROWS,
    fdb::ROWS,
    mdb::ROWS,
    features::ROWS,
    flow_files::ROWS,
    flows::ROWS,
    general::ROWS,
    implementations::ROWS,
    loop_times::ROWS,
    parsing::ROWS,
    perf::ROWS,
    pmd::ROWS,
    routes::ROWS,
    dpctl_datapaths::ROWS,
    slowpath::ROWS,
    threads::ROWS,
    trace::ROWS,
    qos::ROWS,
];

/// Commands of the switch and of its database server.
pub(super) const COMMON: &[Rows] = &[general::COMMON_ROWS];

/// Commands of switches in dummy mode.
pub(super) const DUMMY: &[Rows] = &[dummy::ROWS, dpctl_datapaths::DUMMY_ROWS];

/// Commands of the embedded database server.
pub(super) const DATABASE: &[Rows] = &[database::ROWS];
