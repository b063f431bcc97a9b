"""The job profiling advisor: how fast is a job at sizes where nobody has seen it? Pure.

- `meter`: the reports of one generation to a clean throughput; `drift`: when did it change?
- `posterior`: a scaling curve with its uncertainty, out of measured points
- `knowledge`: what is known of all jobs: their observations, families, what resizes cost them
- `profiler`: which size to try next and which curve to believe, by a budget; `baselines`: other ways, to compare with
- `stragglers`: a slow node told from a slow job
"""

from offcut.advisor.knowledge import JobKnowledge, Knowledge
from offcut.advisor.profiler import Circumstances, Known, Profiler, load

__all__ = ["Circumstances", "JobKnowledge", "Knowledge", "Known", "Profiler", "load"]
