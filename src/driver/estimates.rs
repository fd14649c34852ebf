//! What the cost model expects: of settings, so that a part of them is judged, and of new sources beside their
//! parents, so that the search tries them in a good order. It is asked once about each setting; it judges nothing.

use dashmap::DashMap;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::device::RigError;
use crate::search::{Child, SearchParams};
use crate::source::{Point, Setting, Source};
use crate::units::Digest;
use crate::verdict::{Estimate, TimeRatio};

/// Estimates a setting, cheaply, without judging it.
pub type Estimator<'a> = &'a (dyn Fn(&Source, &Point) -> Result<Estimate, RigError> + Sync);

/// An estimator and what it said so far.
pub(super) struct Estimates<'a> {
    estimator: Estimator<'a>,
    known: DashMap<(Digest, Point), Estimate>,
    /// Of new sources as many settings are looked at as their trial has; `None` where nothing is asked of them.
    trial: Option<usize>,
    /// Theirs alone: no judge waits behind them.
    threads: ThreadPool,
}

impl<'a> Estimates<'a> {
    /// For a search with these parameters that has so many threads for judges.
    pub(super) fn new(
        estimator: Estimator<'a>,
        params: &SearchParams,
        jobs: usize,
    ) -> Result<Self, RigError> {
        let threads = ThreadPoolBuilder::new()
            .num_threads((jobs / 2).max(1))
            .build()
            .map_err(|error| RigError::Io {
                context: "cannot start threads for estimates".to_owned(),
                source: std::io::Error::other(error),
            })?;
        Ok(Self {
            estimator,
            known: DashMap::new(),
            trial: params.prior.then_some(params.trial.max(1) as usize),
            threads,
        })
    }

    /// Of several settings of a source, in their order.
    pub(super) fn of_all(
        &self,
        source: &Source,
        points: Vec<Point>,
    ) -> Result<Vec<(Point, Estimate)>, RigError> {
        points
            .into_par_iter()
            .map(|point| {
                let estimate = self.of(source, &point)?;
                Ok((point, estimate))
            })
            .collect()
    }

    /// Of a source that may get children, at its best setting; `None` where children are not to be estimated, or
    /// cannot be: what is expected of them means something beside their parent alone.
    pub(super) fn of_parent(
        &self,
        source: &Source,
        stands: &Setting,
    ) -> Result<Option<Estimate>, RigError> {
        let point = source.space().point(stands).ok();
        let (Some(point), Some(_)) = (point, self.trial) else {
            return Ok(None);
        };
        let estimate = self.threads.install(|| self.of(source, &point))?;
        Ok(match estimate {
            Estimate::Time(_) => Some(estimate),
            Estimate::Unknown | Estimate::Refused => None,
        })
    }

    /// Puts beside each child what is expected of the best of the settings that it begins with.
    pub(super) fn put_beside(
        &self,
        parent: Estimate,
        stands: &Setting,
        children: &mut [Child],
    ) -> Result<(), RigError> {
        let settings = |child: &Child| {
            let mut first: Vec<Point> = Vec::new();
            for point in child.first(Some(stands)) {
                if !first.contains(&point) {
                    first.push(point);
                }
            }
            first.truncate(self.trial.unwrap_or_default());
            first
        };
        let asked: Vec<(usize, Point)> = (children.iter().enumerate())
            .flat_map(|(nth, child)| settings(child).into_iter().map(move |point| (nth, point)))
            .collect();
        let of = |(nth, point): (usize, Point)| {
            let estimate = self.of(&children[nth].source, &point)?;
            Ok((nth, estimate.beside(parent)))
        };
        let ratios: Vec<(usize, Option<TimeRatio>)> = self.threads.install(|| {
            asked
                .into_par_iter()
                .map(of)
                .collect::<Result<_, RigError>>()
        })?;
        for (nth, ratio) in ratios {
            let least = &mut children[nth].estimated;
            *least = match (*least, ratio) {
                (Some(least), Some(ratio)) if least <= ratio => Some(least),
                (least, ratio) => ratio.or(least),
            };
        }
        Ok(())
    }

    fn of(&self, source: &Source, point: &Point) -> Result<Estimate, RigError> {
        let key = (source.digest(), point.clone());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let estimate = (self.estimator)(source, point)?;
        self.known.insert(key, estimate);
        Ok(estimate)
    }
}
