"""The job-function API."""
