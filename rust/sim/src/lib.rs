//! Engine model and workloads: an emulated SGLang worker in virtual time. No I/O, no clock.
