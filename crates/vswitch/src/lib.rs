//! vswitch
