"""nbgrader's settings for the assignments: run it in this folder."""

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor, Preprocessor
from nbgrader.preprocessors import GetGrades

STYLE = """
.rendered_html table { border-collapse: collapse; margin: 0.6em 0 1em }
.rendered_html th, .rendered_html td { border: 1px solid #bbb; padding: 0.2em 0.6em }
summary { display: list-item; cursor: pointer }
"""


class Readable(Preprocessor):
    """Lines between the cells of a table, whose texts run together in nbgrader's own style, and a
    mark where an answer can be unfolded."""

    def preprocess(self, nb, resources):
        resources["inlining"]["css"].append(STYLE)
        return nb, resources


c = get_config()  # noqa: F821 (nbgrader provides it)
c.CourseDirectory.course_id = "dlviz"
c.ExecutePreprocessor.timeout = 300  # seconds that a cell may take
c.GenerateFeedback.preprocessors = [GetGrades, CSSHTMLHeaderPreprocessor, Readable]
c.Readable.enabled = True
c.WidgetsDataTypeFilter.display_data_priority = [  # in feedback a player is its picture
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "text/plain",
]
