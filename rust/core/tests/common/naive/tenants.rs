//! To whom programs are accounted, and whose turn it is.

use thunder_core::Tokens;

use super::Naive;

/// Somebody to whom programs are accounted, for as long as there are any.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    name: String,
    weight: u32,
    since: u64,
}

impl Naive {
    pub(super) fn account_to(&mut self, program: usize, tenant: Option<(&str, u32)>) {
        if let Some((name, weight)) = tenant {
            let known = self.tenants.iter_mut().find(|t| t.name == name);
            if let Some(known) = known {
                known.weight = weight;
            } else {
                self.tenants_ever += 1;
                self.tenants.push(Tenant {
                    name: name.into(),
                    weight,
                    since: self.tenants_ever,
                });
            }
        }
        self.of(program).tenant = tenant.map(|(name, _)| name.into());
        self.forget_tenants();
    }

    pub(super) fn forget_tenants(&mut self) {
        let programs: Vec<_> = self.programs.iter().flatten().collect();
        self.tenants
            .retain(|t| programs.iter().any(|p| p.tenant.as_ref() == Some(&t.name)));
    }

    /// Tenants with somebody in line, the one that occupies least for its weight first.
    pub(super) fn turns(&self) -> Vec<Option<String>> {
        let mut turns = Vec::new();
        let nobody = [(None, 1, 0)].into_iter();
        let named = self.tenants.iter();
        let named = named.map(|t| (Some(t.name.clone()), t.weight, t.since));
        for (tenant, weight, since) in nobody.chain(named) {
            let own = self.known().into_iter();
            let own: Vec<usize> = own.filter(|p| self.is(*p).tenant == tenant).collect();
            let seated = own.iter().filter(|p| self.is(**p).seat.is_some());
            let occupied: Tokens = seated.map(|p| self.occupies(*p, 0)).sum();
            let share = u128::from(occupied) * 1_000_000 / u128::from(weight);
            let queued = self.queued().into_iter();
            let mut in_line = queued.filter(|p| self.is(*p).claim.is_none());
            if in_line.any(|p| own.contains(&p)) {
                turns.push((share, since, tenant));
            }
        }
        turns.sort();
        turns.into_iter().map(|(_, _, tenant)| tenant).collect()
    }
}
