//! Tests: invariants (`invariants`), masks as in Open vSwitch (`observed`), and individual parts (`parts`), all on
//! `plain` rules.

mod invariants;
mod observed;
mod parts;
mod plain;
mod text;
