"""The scheduler's shell: the typed core, the driver that owns clock and waiters, the journal."""
