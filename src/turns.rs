//! Runs that do not hang on each other, side by side on the host's cores. Their results are looked at in the order of
//! the runs, so what is seen first is the same however many cores there are. It knows not what runs.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// One for each of the host's cores but the one that whoever runs turns keeps busy.
static HOST: LazyLock<Helpers> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Helpers {
        free: AtomicUsize::new(cores - 1),
    }
});

/// Threads that may help whoever runs turns, shared by all who do at the same time.
pub(crate) struct Helpers {
    free: AtomicUsize,
}

impl Helpers {
    /// Those of this process.
    pub(crate) fn of_host() -> &'static Self {
        &HOST
    }

    /// Takes up to so many; they are given back by [`Self::give`].
    fn take(&self, most: usize) -> usize {
        let mut taken = 0;
        let left = |free: usize| {
            taken = most.min(free);
            Some(free - taken)
        };
        // The closure never refuses.
        let _ = (self.free).fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken
    }

    fn give(&self, helpers: usize) {
        self.free.fetch_add(helpers, Ordering::Relaxed);
    }

    /// Runs turns 0 to `turns`, side by side as far as helpers are free, and has `look` look at each result in
    /// order, up to the first at which it breaks off or that is the `last` one. Turns after a last one may have run.
    pub(crate) fn run<R: Send, B>(
        &self,
        turns: usize,
        run: impl Fn(usize) -> R + Sync,
        last: impl Fn(&R) -> bool + Sync,
        look: impl FnMut(R) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let helpers = self.take(turns.saturating_sub(1));
        let ended = if helpers == 0 {
            in_turn(turns, run, look)
        } else {
            side_by_side(turns, helpers, run, last)
                .into_iter()
                .try_for_each(look)
        };
        self.give(helpers);
        ended
    }
}

/// One after the other; none runs that is not looked at.
pub(crate) fn in_turn<R, B>(
    turns: usize,
    run: impl Fn(usize) -> R,
    look: impl FnMut(R) -> ControlFlow<B>,
) -> ControlFlow<B> {
    (0..turns).map(run).try_for_each(look)
}

/// Results in order, up to the first that is the last one.
fn side_by_side<R: Send>(
    turns: usize,
    helpers: usize,
    run: impl Fn(usize) -> R + Sync,
    last: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let end = AtomicUsize::new(turns);
    let results: Vec<Mutex<Option<R>>> = (0..turns).map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            // Those before the earliest last one all run: it may turn out to be an earlier one.
            if turn >= end.load(Ordering::Relaxed) {
                return;
            }
            let result = run(turn);
            if last(&result) {
                end.fetch_min(turn + 1, Ordering::Relaxed);
            }
            *results[turn].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(work);
        }
        work();
    });
    let end = end.into_inner();
    (results.into_iter().take(end))
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::Helpers;

    /// What is seen of 20 turns that take longer the earlier they are, the last one being the first of `last`.
    fn seen(helpers: usize, last: &[usize]) -> (Vec<usize>, Option<usize>) {
        let helpers = Helpers {
            free: AtomicUsize::new(helpers),
        };
        let free = helpers.free.load(Ordering::Relaxed);
        let mut seen = Vec::new();
        let ended = helpers.run(
            20,
            |turn| {
                std::thread::sleep(Duration::from_micros(100 * (20 - turn as u64)));
                turn
            },
            |turn| last.contains(turn),
            |turn| {
                seen.push(turn);
                if last.contains(&turn) {
                    ControlFlow::Break(turn)
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        assert_eq!(helpers.free.load(Ordering::Relaxed), free);
        (seen, ended.break_value())
    }

    #[test]
    fn the_first_that_ends_it_is_the_same_however_many_help() {
        for helpers in [0, 1, 3, 40] {
            assert_eq!(seen(helpers, &[]), ((0..20).collect(), None));
            assert_eq!(seen(helpers, &[0]), (vec![0], Some(0)));
            assert_eq!(seen(helpers, &[7, 4, 19]), ((0..=4).collect(), Some(4)));
        }
    }

    #[test]
    fn helpers_are_taken_once() {
        let helpers = Helpers {
            free: AtomicUsize::new(3),
        };
        assert_eq!(helpers.take(2), 2);
        assert_eq!(helpers.take(2), 1);
        assert_eq!(helpers.take(2), 0);
        helpers.give(3);
        assert_eq!(helpers.take(9), 3);
    }
}
