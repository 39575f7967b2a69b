"""Whether any rank can still go on, and the report if none can."""
