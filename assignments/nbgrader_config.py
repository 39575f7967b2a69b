"""nbgrader's settings for the assignments: run it in this folder."""

c = get_config()  # noqa: F821 (nbgrader provides it)
c.CourseDirectory.course_id = "dlviz"
c.ExecutePreprocessor.timeout = 300  # seconds that a cell may take
c.WidgetsDataTypeFilter.display_data_priority = [  # in feedback a player is its picture
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "text/plain",
]
