//! Facts from bytes: scans a request body once and a response as it streams. No I/O.
