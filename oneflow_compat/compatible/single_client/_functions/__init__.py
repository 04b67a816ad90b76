"""The functions of the top level of the job-function API, and how their older argument orders are called."""
