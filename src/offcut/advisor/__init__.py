"""Estimates scaling curves from measurements: how fast a job is at sizes at which it has not run yet. Pure.

- `throughput_meter`: from the reports of one generation to its throughput; `drift`: detects when it changes
- `posterior`: fits a scaling curve with its uncertainty to measured points
- `job_history`: observations of all jobs, their families, and what resizes cost them
- `curve_models`: which curve to use and which size to try next, within a budget; `baselines`: other curve models, for
  comparison
- `stragglers`: tells a slow node from a slow job
"""

from offcut.advisor.curve_models import Circumstances, CurveModel, Evidence, load
from offcut.advisor.job_history import JobHistories, JobHistory

__all__ = ["Circumstances", "CurveModel", "Evidence", "JobHistories", "JobHistory", "load"]
